"""Word error rate and diarization error rate on recordings with known words: `python benchmarks/quality.py [FILE...]`.

Each FILE has NAME.txt beside it (`speaker: words` a line) and NAME.rttm (who speaks when). They go through a standalone
Voxint from the queue to the transcript, on the models that it has. Scored by libraries that are not ours: jiwer, and
pyannote.metrics with a collar of 0.25 s on either side of each boundary and overlaps counted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jiwer
from pyannote.core import Annotation, Segment, Timeline
from pyannote.metrics.diarization import DiarizationErrorRate

from voxint.standalone.demo import known_words
from voxint.standalone.demo.items import samples
from voxint.standalone.demo.session import Session
from voxint.standalone.home import Home

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from voxint.wiring import Parts

SETTINGS = {"GPU_PHASE_TICK_SECONDS": "5", "GPU_PHASE_MIN_DWELL_SECONDS": "0"}
COLLAR_SECONDS = 0.25
"""On either side of a boundary; pyannote.metrics takes the whole width."""
LIMIT_SECONDS = 3600.0


def rttm(path: Path) -> Annotation:
    """Who speaks when, by hand or by construction."""
    found = Annotation(uri=path.stem)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        kind, _, _, start, length, *rest = line.split()
        if kind == "SPEAKER":
            found[Segment(float(start), float(start) + float(length)), number] = rest[2]
    return found


def spoken(name: str, turns: Iterable[dict[str, Any]], label: str) -> Annotation:
    """Turns, or lines, of a result."""
    found = Annotation(uri=name)
    for number, turn in enumerate(turns):
        if turn["end"] > turn["start"]:
            found[Segment(turn["start"], turn["end"]), number] = turn[label] or "nobody"
    return found


def until_done(parts: Parts, session: Session, runs: Sequence[int]) -> None:
    """Wait for the end of all runs."""
    end = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < end:
        session.check()
        states = [parts.run_store.get(run) for run in runs]
        ended = [state for state in states if state is not None and state.status in {"done", "failed", "cancelled"}]
        if len(ended) == len(runs):
            failed = [f"{state.title}: {state.error}" for state in ended if state.status != "done"]
            if failed:
                raise SystemExit("; ".join(failed))
            return
        time.sleep(1)
    raise SystemExit(f"the recordings were not done within {LIMIT_SECONDS:g} s")


class Scores:
    """The scores of all recordings together, and of each."""

    def __init__(self) -> None:
        self._der = {name: DiarizationErrorRate(collar=2 * COLLAR_SECONDS) for name in ("turns", "lines")}
        self._words: dict[str, tuple[list[str], list[str]]] = {"heard": ([], []), "shown": ([], [])}
        self.each: dict[str, dict[str, Any]] = {}

    def add(self, path: Path, results: dict[str, dict[str, Any]]) -> None:
        """Score one recording."""
        known = known_words.read(path)
        if known is None:
            raise SystemExit(f"{path.with_suffix('.txt')} is missing: the words that are said in it")
        lines = results["finalize"]["transcript"]["lines"]
        texts = {
            "heard": " ".join(line["heard"] or line["text"] for line in lines),
            "shown": " ".join(line["text"] for line in lines),
        }
        scores: dict[str, Any] = {"speakers": known.speakers, "speakers_found": len({line["label"] for line in lines})}
        for name, text in texts.items():
            truth, told = known_words.plain_words(known.words), known_words.plain_words(text)
            self._words[name][0].append(truth)
            self._words[name][1].append(told)
            scores[f"word_error_rate_{name}"] = round(jiwer.wer(truth, told), 4)
        reference = rttm(path.with_suffix(".rttm"))
        length = Timeline([Segment(0, float(results["prepare"]["duration_seconds"]))])
        found = {
            "turns": spoken(path.stem, results["diarize_embed"]["turns"], "speaker"),
            "lines": spoken(path.stem, lines, "label"),
        }
        for name, annotation in found.items():
            scores[f"diarization_error_rate_{name}"] = round(self._der[name](reference, annotation, uem=length), 4)
        self.each[path.stem] = scores

    def all(self) -> dict[str, float]:
        """Over all recordings."""
        words = {f"word_error_rate_{name}": jiwer.wer(*texts) for name, texts in self._words.items()}
        turns = {f"diarization_error_rate_{name}": abs(der) for name, der in self._der.items()}
        return {name: round(float(value), 4) for name, value in {**words, **turns}.items()}


def main() -> int:
    """Score, print, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--into", type=Path, default=Path("build") / "quality")
    chosen = parser.parse_args()
    into = chosen.into.absolute()
    shutil.rmtree(into, ignore_errors=True)
    home = Home(into / "data")
    home.make()
    paths = [path.absolute() for path in chosen.files or samples()]
    scores = Scores()
    with Session(home, {**os.environ, **SETTINGS}, stand_ins=False) as session:
        parts = session.up()
        runs = [parts.run_store.add(path, title=path.stem).id for path in paths]
        parts.publisher.wake_phase()
        until_done(parts, session, runs)
        for path, run in zip(paths, runs, strict=True):
            results = parts.run_store.results(run)
            scores.add(path, results)
        models = results["finalize"]["transcript"]["models"]
    document = {"collar_seconds": COLLAR_SECONDS, "models": models, "all": scores.all(), "recordings": scores.each}
    result = into.with_name(into.name + ".json")
    result.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document, indent=1))
    print(f"written to {result}")
    shutil.rmtree(into)
    return 0


if __name__ == "__main__":
    sys.exit(main())
