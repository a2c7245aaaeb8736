"""A recording of an hour through the whole pipeline on the real small models: `python benchmarks/long_recording.py`.

The samples, one after the other and again, make a recording of the wanted length. A standalone Voxint takes it from
the queue to the transcript. Written down are how long each stage took, the largest memory of each process, and how much
of the known words is in the transcript. Nothing of it is a speed of this software: it is that of the models on this
machine's processor.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import av
import psutil

from voxint.standalone.demo import known_words
from voxint.standalone.demo.items import samples
from voxint.standalone.demo.session import Session
from voxint.standalone.environment import LANGUAGE_MODEL, processors
from voxint.standalone.home import Home

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxint.recordings.run import RunDetail
    from voxint.wiring import Parts

RATE = 16_000
SETTINGS = {"GPU_PHASE_TICK_SECONDS": "5", "GPU_PHASE_MIN_DWELL_SECONDS": "0"}
LOOK_SECONDS = 0.5
NAMES = (
    (re.compile(r"voxint_models\.(\w+)"), lambda found: f"model server: {found.group(1)}"),
    (re.compile(r"voxint_broker"), lambda _: "broker"),
    (re.compile(r"recordings\.media\.child"), lambda _: "decoder"),
    (re.compile(r"voxint worker --gpu-phase"), lambda _: "gpu-phase worker"),
    (re.compile(r"voxint worker"), lambda _: "worker"),
    (re.compile(r"voxint (beat|serve|standalone)"), lambda found: found.group(1)),
    (re.compile(r"postgres"), lambda _: "postgres"),
    (re.compile(r"valkey|redis"), lambda _: "valkey"),
)
"""How a process is called, by its command line."""


def frames_of(path: Path) -> list[av.AudioFrame]:
    """A sample's sound at 16 kHz, one channel."""
    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
    with av.open(str(path)) as container:
        decoded = itertools.chain(container.decode(audio=0), [None])
        return [made for frame in decoded for made in resampler.resample(frame)]


def make_recording(parts: Sequence[Path], seconds: float, to: Path) -> tuple[float, int]:
    """Repeat the samples in their order until the length is reached, as FLAC; gives the length and the repetitions."""
    sounds = [b"".join(bytes(frame.planes[0])[: frame.samples * 2] for frame in frames_of(path)) for path in parts]
    times = max(1, round(seconds * RATE * 2 / sum(len(sound) for sound in sounds)))
    written = 0
    with av.open(str(to), "w", format="flac") as out:
        stream = out.add_stream("flac", rate=RATE, layout="mono")
        for sound in itertools.chain.from_iterable(itertools.repeat(sounds, times)):
            frame = av.AudioFrame(format="s16", layout="mono", samples=len(sound) // 2)
            frame.planes[0].update(sound.ljust(frame.planes[0].buffer_size, b"\0"))
            frame.rate, frame.pts, frame.time_base = RATE, written, Fraction(1, RATE)
            written += frame.samples
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return written / RATE, times


class Memory(threading.Thread):
    """Looks at every process of one data folder, and keeps the largest memory of each kind in bytes.

    `rss` is the largest resident memory of one process as the kernel counts it; `together` is the largest sum of the
    proportional shares of all processes at one look.
    """

    def __init__(self, home: Home) -> None:
        super().__init__(daemon=True)
        self._home = home
        self._end = threading.Event()
        self.rss: dict[str, int] = {}
        self.together = 0

    def run(self) -> None:
        """Look again and again."""
        while not self._end.wait(LOOK_SECONDS):
            self.together = max(self.together, sum(self._look(process) for process in psutil.process_iter()))

    def _look(self, process: psutil.Process) -> int:
        try:
            if not self._ours(process):
                return 0
            line = " ".join(process.cmdline())
            name = next((call(found) for pattern, call in NAMES if (found := pattern.search(line))), None)
            if name is None:
                return 0
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
            peak = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]
            self.rss[name] = max(self.rss.get(name, 0), peak)
            return int(process.memory_full_info().pss)
        except (psutil.Error, OSError, TypeError):
            return 0  # it has ended meanwhile

    def _ours(self, process: psutil.Process) -> bool:
        if str(self._home.folder) in " ".join(process.cmdline()):
            return True
        return process.environ().get("VOXINT_HOME") == str(self._home.folder)

    def end(self) -> None:
        """Stop looking."""
        self._end.set()
        self.join()


def until_done(parts: Parts, session: Session, run_id: int, limit: float, memory: Memory) -> RunDetail:
    """Wait for the end of the run; prints what it is at, and with each stage the largest memory of each process."""
    end = time.monotonic() + limit
    told: tuple[object, ...] | None = None
    while time.monotonic() < end:
        session.check()
        detail = parts.run_store.show(run_id)
        if detail is None:
            raise SystemExit("the recording is gone")
        if detail.run.status in {"done", "failed", "cancelled"}:
            return detail
        share = detail.run.progress
        now = (detail.run.stage, detail.run.status, None if share is None else round(share, 1))
        if told is None or now[0] != told[0]:
            print("  MiB so far:", {name: round(size / 2**20) for name, size in sorted(memory.rss.items())}, flush=True)
        if now != told:
            print(
                f"  {time.strftime('%H:%M:%S')}  {now[0]} {now[1]} {'' if share is None else f'{share:.0%}'}",
                flush=True,
            )
            told = now
        time.sleep(1)
    raise SystemExit(f"the recording was not done within {limit:g} s")


def stages(detail: RunDetail) -> dict[str, dict[str, Any]]:
    """Seconds and attempts of each stage."""
    found: dict[str, dict[str, Any]] = {}
    for each in detail.executions:
        entry = found.setdefault(each.kind, {"seconds": 0.0, "claims": 0})
        entry["claims"] += 1
        if each.ended_at is not None:
            entry["seconds"] = round(entry["seconds"] + (each.ended_at - each.started_at).total_seconds(), 1)
    return found


def understood(transcript: dict[str, Any], parts: Sequence[Path], times: int) -> dict[str, Any]:
    """The word error rate, and how far behind the last line is."""
    known = [known_words.read(path) for path in parts]
    words = " ".join(each.words for each in known if each is not None)
    heard = " ".join(line["text"] for line in transcript["lines"])
    one = known_words.Understood("long", known_words.Known(" ".join([words] * times), 3), heard, 0)
    lines = transcript["lines"]
    return {
        "word_error_rate": round(known_words.word_error_rate([one]), 4),
        "words_known": len(one.known.words.split()),
        "lines": len(lines),
        "speakers_found": len({line["label"] for line in lines if line["label"]}),
        "last_line_ends_at_seconds": lines[-1]["end"] if lines else 0.0,
        "lines_in_order": all(a["start"] <= b["start"] for a, b in itertools.pairwise(lines)),
    }


def main() -> int:
    """Measure, print, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--into", type=Path, default=Path("build") / "long")
    parser.add_argument("--limit-seconds", type=float, default=7200.0)
    chosen = parser.parse_args()
    into = chosen.into.absolute()
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    source = into / "long.flac"
    parts = samples()
    length, times = make_recording(parts, chosen.minutes * 60, source)
    print(f"{source.name}: {length / 60:.1f} minutes, {len(parts)} samples {times} times", flush=True)
    home = Home(into / "data")
    home.make()
    memory = Memory(home)
    memory.start()
    began = time.monotonic()
    with Session(home, {**os.environ, **SETTINGS}, stand_ins=False) as session:
        made = session.up()
        run = made.run_store.add(source, title="long")
        made.publisher.wake_phase()
        detail = until_done(made, session, run.id, chosen.limit_seconds, memory)
        seconds = time.monotonic() - began
        final = made.run_store.results(run.id).get("finalize")
        memory.end()
        if detail.run.status != "done" or final is None:
            print(f"the recording {detail.run.status}: {detail.run.error}", file=sys.stderr)
            return 1
        document = {
            "recording_seconds": round(length, 1),
            "seconds": round(seconds, 1),
            "processors": processors(),
            "language_model": LANGUAGE_MODEL,
            "stages": stages(detail),
            "warnings": list(detail.run.warnings),
            "peak_resident_mib": {name: round(size / 2**20) for name, size in sorted(memory.rss.items())},
            "peak_together_mib": round(memory.together / 2**20),
            "language_model_lines": made.run_store.results(run.id)["enhance_match"]["llm"],
            **understood(final["transcript"], parts, times),
        }
    result = into.with_name(into.name + ".json")
    result.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document, indent=1))
    print(f"written to {result}")
    shutil.rmtree(into)
    whole = document["last_line_ends_at_seconds"] > length - 30 and document["lines_in_order"]
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
