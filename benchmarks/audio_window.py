"""How busy the recogniser is in an audio window: `python benchmarks/audio_window.py [--scale 0.5] [--ahead]`.

Ten recordings, and stand-ins for the models that take 6 s (whisper), 4 s (pyannote) and 1 s (titanet) for an answer. A
standalone Voxint works them off; the card's ledger, which each model process writes itself, says when it served a request.
Between its first and its last call whisper should never wait for anything but itself.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
import wave
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figures import RATIO, Row, row
from ground import folder
from sqlalchemy import text

from voxint.standalone.demo.session import Session
from voxint.standalone.environment import processors
from voxint.standalone.home import Home

if TYPE_CHECKING:
    from collections.abc import Iterable

    from voxint.wiring import Parts

SETTINGS = {"GPU_PHASE_TICK_SECONDS": "5", "GPU_PHASE_MIN_DWELL_SECONDS": "0"}
SECONDS = {"whisper": 6.0, "pyannote": 4.0, "titanet": 1.0}
LEAST_SHARE = 0.9
LIMIT_SECONDS = 900.0


def recordings(folder: Path, count: int) -> list[Path]:
    """Short recordings that differ."""
    made = []
    for number in range(count):
        path = folder / f"recording-{number:02d}.wav"
        with wave.open(str(path), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16_000)
            file.writeframes(bytes([number % 250 + 1, 16, 0, 3]) * 32_000)
        made.append(path)
    return made


def calls(ledger: Iterable[str]) -> dict[str, list[tuple[float, float]]]:
    """Begin and end of each request that a service served, in seconds of the clock, by service."""
    open_at: dict[tuple[str, int], list[float]] = {}
    found: dict[str, list[tuple[float, float]]] = {}
    for line in ledger:
        entry: dict[str, Any] = json.loads(line)
        at = datetime.fromisoformat(entry["at"]).timestamp()
        key = (entry["service"], entry["pid"])
        if entry["event"] == "request_start":
            open_at.setdefault(key, []).append(at)
        elif entry["event"] == "request_end":
            found.setdefault(entry["service"], []).append((open_at[key].pop(0), at))
    return found


def share(served: list[tuple[float, float]]) -> float:
    """Seconds in a request, as a share of those between the first call and the last one's end."""
    first, last = min(begin for begin, _ in served), max(end for _, end in served)
    return sum(end - begin for begin, end in served) / (last - first)


def worked_off(into: Path, count: int, seconds: dict[str, float], *, ahead: bool = False) -> dict[str, Any]:
    """Work recordings off on a standalone with stand-ins that take so many seconds for an answer.

    Gives each service's calls, and the wall time from the first recording's arrival until the last one's end, in seconds.
    """
    shutil.rmtree(into, ignore_errors=True)
    home = Home(into / "data")
    home.make()
    control = into / "stubs.json"
    control.write_text(json.dumps({name: {"answer_seconds": value} for name, value in seconds.items()}))
    environ = {**os.environ, **SETTINGS, "STUB_CONTROL": str(control)}
    environ |= {"GPU_PHASE_PREPARE_AHEAD": "true"} if ahead else {}
    with Session(home, environ, stand_ins=True) as session:
        parts = session.up()
        runs = [parts.run_store.add(path).id for path in recordings(into, count)]
        parts.publisher.wake_phase()
        end = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < end:
            session.check()
            if _all_done(parts, len(runs)):
                break
            time.sleep(0.5)
        else:
            raise SystemExit(f"the recordings were not done within {LIMIT_SECONDS:g} s")
        with parts.engine.begin() as connection:
            times = {name: float(connection.execute(text(query)).scalar_one()) for name, query in TIMES.items()}
    served = calls(home.card_ledger.read_text(encoding="utf-8").splitlines())
    shutil.rmtree(into)
    return {"calls": served, **times}


TIMES = {
    "wall_seconds": "SELECT extract(epoch FROM max(finished_at) - min(created_at)) FROM run",
    "on_the_gpu_seconds": (
        "SELECT extract(epoch FROM max(ended_at) - min(started_at)) FROM stage_execution"
        " WHERE kind IN ('acquire', 'prepare', 'transcribe', 'diarize_embed')"
    ),
    "afterwards_seconds": (
        "SELECT extract(epoch FROM max(ended_at) - min(started_at)) FROM stage_execution"
        " WHERE kind IN ('enhance_match', 'finalize')"
    ),
}


def _all_done(parts: Parts, count: int) -> bool:
    with parts.engine.begin() as connection:
        counted = connection.execute(text("SELECT status, count(*) FROM run GROUP BY status")).all()
    failed = [status for status, _ in counted if status not in {"queued", "running", "done"}]
    if failed:
        raise SystemExit(f"a recording was {failed[0]}")
    return [tuple(each) for each in counted] == [("done", count)]


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """The seconds in which at least one of these was going on."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def scaled(scale: float) -> dict[str, float]:
    """What each model takes for an answer."""
    return {name: value * scale for name, value in SECONDS.items()}


def measure(*, quick: bool = False) -> list[Row]:
    """A window of 10 and one of 100 recordings; in `make bench-quick` of 10, with quick models, alone."""
    rows = []
    for count, scale in ((10, 0.2),) if quick else ((10, 0.2), (10, 1.0), (100, 0.2)):
        with folder("window") as into:
            found = worked_off(into, count, scaled(scale))
        busy = share(found["calls"]["whisper"])
        name = (
            f"window of {count} recordings, whisper {SECONDS['whisper'] * scale:g} s each: share that whisper is busy"
        )
        rows.append(row(name, busy, RATIO, 1, LEAST_SHARE, bound="at least"))
    return rows


def main() -> int:
    """Measure, print, and write the figures; 1 where whisper waited too long."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--recordings", type=int, default=10)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--ahead", action="store_true", help="with GPU_PHASE_PREPARE_AHEAD")
    parser.add_argument("--into", type=Path, default=Path("build") / "audio-window")
    chosen = parser.parse_args()
    into = chosen.into.absolute()
    seconds = scaled(chosen.scale)
    served = worked_off(into, chosen.recordings, seconds, ahead=chosen.ahead)["calls"]
    document = {
        "recordings": chosen.recordings,
        "answer_seconds": seconds,
        "processors": processors(),
        "prepare_ahead": chosen.ahead,
        "calls": {name: len(served[name]) for name in SECONDS},
        "busy_share": {name: round(share(served[name]), 4) for name in SECONDS},
        "load_average": [round(value, 1) for value in os.getloadavg()],
    }
    result = into.with_name(into.name + ".json")
    result.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document, indent=1))
    print(f"written to {result}")
    good = document["busy_share"]["whisper"] >= LEAST_SHARE and set(document["calls"].values()) == {chosen.recordings}
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
