"""All the measurements: `make bench`, and `make bench-quick`, which compares ratios with those that are kept.

The whole run writes benchmarks/results.json and docs/benchmarks.md. What sleeps most of its time (turns of slow services,
a tick every 30 s, gpu-broker) is measured side by side; the rest comes one after the other, alone on the machine as far as
we are concerned. The load average stands beside each figure.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import audio_window
import broker_switch
import cli
import day
import figures
import gate
import opening
import others
import overhead
import page
import quick
import ticks
import turn
from ground import BUILD, ROOT, folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from figures import Row


def _day() -> list[Row]:
    rows = day.all_rows()
    day.write(rows, ROOT)
    return day.figures(rows)


SIDE_BY_SIDE: dict[str, Callable[[], list[Row]]] = {
    "turn-2-20": lambda: turn.measure_slow(turn.SERVICES),
    "turn-5-60": lambda: turn.measure_slow(turn.SLOW_SERVICES),
    "gpu-broker": lambda: [
        *others.measure_one(turn.QUICK_SERVICES, 10),
        *others.measure_one(turn.SERVICES, 2),
    ],
    "day": _day,
}
IN_THE_BACKGROUND: dict[str, Callable[[], list[Row]]] = {"turn-ticks-alone": turn.measure_ticks_alone}
"""Takes five minutes in which it does nothing but wait for ticks."""
ONE_BY_ONE: dict[str, Callable[[], list[Row]]] = {
    "turn": turn.measure,
    "tick": ticks.measure,
    "gate": gate.measure,
    "opening": opening.measure,
    "window": audio_window.measure,
    "cli": cli.measure,
    "broker": broker_switch.measure,
    "overhead": overhead.measure,
}
QUICK: dict[str, Callable[[], list[Row]]] = {
    "turn": lambda: turn.measure(quick=True),
    "tick": lambda: ticks.measure(quick=True),
    "gate": lambda: gate.measure(quick=True),
    "window": lambda: audio_window.measure(quick=True),
    "cli": lambda: cli.measure(quick=True),
    "broker": lambda: broker_switch.measure(quick=True),
}


class Runs:
    """Measures parts, prints their rows, and keeps what could not be measured."""

    def __init__(self) -> None:
        self.by_part: dict[str, list[Row]] = {}
        self.failed: list[str] = []

    @property
    def rows(self) -> list[Row]:
        """The rows in the order of the parts, whichever was ready first."""
        order = [*ONE_BY_ONE, *SIDE_BY_SIDE, *IN_THE_BACKGROUND]
        return [each for name in sorted(self.by_part, key=order.index) for each in self.by_part[name]]

    def measure(self, name: str, measure: Callable[[], list[Row]]) -> list[Row]:
        """One part's rows; none where it could not be measured."""
        begun = time.monotonic()
        try:
            found = measure()
        except (Exception, SystemExit):  # noqa: BLE001 - the others go on, and this one is named at the end
            traceback.print_exc()
            self.failed.append(name)
            return []
        self.by_part[name] = found
        print(f"-- {name}, {time.monotonic() - begun:.0f} s", flush=True)
        for each in found:
            print(f"{_mark(each)} {each.name}: {each.value:g} {each.unit}{_limit(each)}", flush=True)
        return found


def _apart(name: str) -> list[Row]:
    """A part in a process of its own, for what is measured side by side."""
    with folder(f"apart-{name}") as place:
        argv = [sys.executable, __file__, "--apart", str(place / "rows.json"), name]
        subprocess.run(argv, check=True)
        return figures.load(place / "rows.json")


def _mark(each: Row) -> str:
    return {None: " ", True: "+", False: "!"}[each.good]


def _limit(each: Row) -> str:
    return "" if each.limit is None else f" ({each.bound} {each.limit:g})"


def everything(wanted: Sequence[str]) -> int:
    """Measure, write, and say what is beyond its limit."""
    begun = time.monotonic()
    runs = Runs()

    def chosen(parts: dict[str, Callable[[], list[Row]]]) -> list[tuple[str, Callable[[], list[Row]]]]:
        return [(name, measure) for name, measure in parts.items() if not wanted or name in wanted]

    with ThreadPoolExecutor(8) as pool:

        def apart(parts: dict[str, Callable[[], list[Row]]]) -> list[Future[list[Row]]]:
            return [pool.submit(runs.measure, name, partial(_apart, name)) for name, _ in chosen(parts)]

        background = apart(IN_THE_BACKGROUND)
        for each in apart(SIDE_BY_SIDE):
            each.result()
        for name, measure in chosen(ONE_BY_ONE):
            runs.measure(name, measure)
        for each in background:
            each.result()
    whole = not wanted and not runs.failed  # then nothing is kept of figures that are no longer made
    figures.save(runs.rows if whole else figures.merged(figures.load(), runs.rows))
    print(f"-- {len(runs.rows)} figures in {time.monotonic() - begun:.0f} s, kept in {figures.RESULTS}")
    try:
        page.write()
    except ValueError as error:
        print(f"{page.PAGE} is not written anew: {error}", file=sys.stderr)
    for each in runs.rows:
        if each.good is False:
            print(f"beyond its limit: {each.name}: {each.value:g} {each.unit}{_limit(each)}")
    for name in runs.failed:
        print(f"could not be measured: {name}", file=sys.stderr)
    return 1 if runs.failed else 0


def quickly() -> int:
    """Measure the quick ones; 1 where a ratio is worse than twice the kept one, several times in a row."""
    begun = time.monotonic()
    runs = Runs()
    worse = quick.worse({name: partial(runs.measure, name, part) for name, part in QUICK.items()}, figures.load())
    figures.save(runs.rows, BUILD / "quick.json")
    print(f"-- {time.monotonic() - begun:.0f} s")
    for each in worse:
        print(f"worse than twice what is kept: {each}", file=sys.stderr)
    return 1 if worse else 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="compare ratios with those that are kept")
    parser.add_argument("--apart", type=Path, help="write one part's figures to this file, and nothing else")
    names = [*SIDE_BY_SIDE, *IN_THE_BACKGROUND, *ONE_BY_ONE]
    parser.add_argument("parts", nargs="*", choices=[*names, []], help="only these")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended on the way out
    if chosen.apart:
        figures.save({**SIDE_BY_SIDE, **IN_THE_BACKGROUND}[chosen.parts[0]](), chosen.apart)
        return 0
    return quickly() if chosen.quick else everything(chosen.parts)


if __name__ == "__main__":
    sys.exit(main())
