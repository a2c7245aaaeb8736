"""A day of turns under other settings: `python benchmarks/day.py`, on the product's own rules in simulated time.

Three ways in which recordings come: an office (meetings between nine and six), a podcast's backlog (60 recordings at
midnight), and a steady trickle (one every 20 minutes). Writes build/day.json and docs/reference/day.svg, prints a table.
Everything is computed: the same numbers come out on every machine.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from figures import Row, row

from voxint.gpu_phase.policy import Policy
from voxint.gpu_phase.simulate import Arrival, Simulation, World, least_away, quantile

ROOT = Path(__file__).parents[1]
BEGIN = datetime(2026, 5, 4, tzinfo=UTC)
DAY = timedelta(days=1)
LENGTH = timedelta(days=2)  # the second day is there to finish what came late
SEED = 7
DWELLS = (1, 2, 5, 10, 20, 30, 60)
AUDIO = (30, 120)
TICKS = (30, 60)
SPEED = 20
"""How many times faster than it was spoken a recording is transcribed on a GPU; its transcript is mended at the same pace."""


def recordings(pattern: str) -> list[Arrival]:
    """A day's recordings."""
    draw = random.Random(SEED)
    minutes: list[tuple[float, float]] = []
    if pattern == "office":
        minutes = [(draw.uniform(9, 18) * 60, draw.choice([15, 30, 45, 60, 60, 90])) for _ in range(14)]
    elif pattern == "backlog":
        minutes = [(0, draw.uniform(30, 90)) for _ in range(60)]
    else:
        minutes = [(number * 20, draw.uniform(5, 25)) for number in range(72)]
    made = []
    for at, length in minutes:
        work = timedelta(minutes=length) / SPEED
        made.append(Arrival(BEGIN + timedelta(minutes=at), work, work))
    return made


def measure(pattern: str, policy: Policy) -> dict[str, object]:
    """One row."""
    arrivals = recordings(pattern)
    found = Simulation(policy, World(), timedelta(seconds=1), BEGIN).run(arrivals, LENGTH)
    heard, done = quantile(found.heard, 0.5), quantile(found.done, 0.95)
    late = quantile(found.heard, 0.95)
    return {
        "pattern": pattern,
        "min_dwell_minutes": policy.min_dwell.total_seconds() / 60,
        "max_audio_minutes": policy.max_audio.total_seconds() / 60,
        "tick_seconds": policy.tick.total_seconds(),
        "turns": found.turns,
        "llm_away_minutes": round(found.llm_away.total_seconds() / 60, 1),
        "least_away_minutes": round(least_away(arrivals, World()).total_seconds() / 60, 1),
        "unused_minutes": round(found.unused.total_seconds() / 60, 1),
        "heard_p50_minutes": round(heard.total_seconds() / 60, 1) if heard else None,
        "heard_p95_minutes": round(late.total_seconds() / 60, 1) if late else None,
        "done_p95_minutes": round(done.total_seconds() / 60, 1) if done else None,
        "unfinished": found.unfinished,
    }


def table(rows: list[dict[str, object]]) -> str:
    """The rows as Markdown."""
    heads = [key.replace("_", " ") for key in rows[0]]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(str(value) for value in row.values()) + " |" for row in rows])


def picture(rows: list[dict[str, object]]) -> str:
    """Waits and the language model's time away over min dwell, a panel for each pattern."""
    patterns = ["office", "backlog", "trickle"]
    width, height, left, gap = 230, 170, 46, 40
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {3 * (width + gap) + left} 260" font-family="sans-serif"'
            ' font-size="11"><rect width="100%" height="100%" fill="#fff"/>'
        )
    ]
    for number, pattern in enumerate(patterns):
        chosen = [
            row
            for row in rows
            if row["pattern"] == pattern and row["max_audio_minutes"] == 120 and row["tick_seconds"] == 30
        ]
        x0 = left + number * (width + gap)
        top = max(float(str(row[name])) for row in chosen for name in ("heard_p95_minutes", "llm_away_minutes")) or 1
        parts.append(f'<text x="{x0}" y="24" font-weight="bold">{pattern}</text>')
        parts.append(f'<path d="M{x0} 40V{40 + height}H{x0 + width}" fill="none" stroke="#888"/>')
        parts.append(f'<text x="{x0 - 6}" y="46" text-anchor="end">{top:.0f}</text>')
        parts.append(f'<text x="{x0 - 6}" y="{40 + height}" text-anchor="end">0</text>')
        for name, colour in (("heard_p95_minutes", "#b4490f"), ("llm_away_minutes", "#1f6f8b")):
            points = " ".join(
                f"{x0 + width * index / (len(chosen) - 1):.1f},{40 + height * (1 - float(str(row[name])) / top):.1f}"
                for index, row in enumerate(chosen)
            )
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for index, each in enumerate(chosen):
            x = x0 + width * index / (len(chosen) - 1)
            parts.append(
                f'<text x="{x:.1f}" y="{56 + height}" text-anchor="middle">{each["min_dwell_minutes"]:g}</text>'
            )
    legend = "min dwell in minutes; brown: wait until heard, p95, minutes; blue: language model away, minutes"
    parts.append(f'<text x="{left}" y="250">{legend}</text></svg>')
    return "\n".join(parts) + "\n"


def all_rows() -> list[dict[str, object]]:
    """Every pattern under every setting."""
    rows = []
    for pattern in ("office", "backlog", "trickle"):
        for audio in AUDIO:
            for tick in TICKS:
                for dwell in DWELLS:
                    if dwell <= audio:
                        policy = replace(
                            Policy(),
                            min_dwell=timedelta(minutes=dwell),
                            max_audio=timedelta(minutes=audio),
                            tick=timedelta(seconds=tick),
                        )
                        rows.append(measure(pattern, policy))
    return rows


def write(rows: list[dict[str, object]], into: Path) -> None:
    """The numbers, and the picture."""
    (into / "build").mkdir(exist_ok=True)
    (into / "build" / "day.json").write_text(
        json.dumps({"seed": SEED, "rows": rows}, indent=1) + "\n", encoding="utf-8"
    )
    target = into / "docs" / "explanation" / "settings-of-a-day.svg"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(picture(rows), encoding="utf-8")


SHOWN = {"min_dwell_minutes": (2.0, 10.0), "max_audio_minutes": (120.0,), "tick_seconds": (30.0,)}
"""The settings whose rows stand among the other figures: the recommended dwell, and the default one."""


def figures(rows: list[dict[str, object]]) -> list[Row]:
    """Some of them as figures. Everything is computed: n is the number of recordings of the day."""
    found = []
    for each in rows:
        if all(each[name] in values for name, values in SHOWN.items()):
            name = f"day of {each['pattern']}, min dwell {each['min_dwell_minutes']:g} min"
            count = len(recordings(str(each["pattern"])))
            found += [
                row(f"{name}: {words}", float(str(each[f"{what}_minutes"])), "min", count)
                for what, words in WORDS.items()
            ]
    return found


WORDS = {
    "heard_p50": "wait until heard, median",
    "heard_p95": "wait until heard, p95",
    "done_p95": "wait until done, p95",
    "llm_away": "language model away",
    "least_away": "language model away, lower bound",
    "unused": "the GPU away from it and unused",
}


def main() -> int:
    """Measure all, write, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--into", type=Path, default=ROOT)
    into = parser.parse_args().into
    rows = all_rows()
    write(rows, into)
    print(f"seed {SEED}")
    print(table(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
