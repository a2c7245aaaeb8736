"""What came out of a demo: read from the database and the ledger, written into the output folder, and printed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psutil

from voxint.gpu_phase.wording import figures
from voxint.standalone.demo import timeline
from voxint.standalone.demo.view import printable, words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from voxint.recordings.run import Run
    from voxint.standalone.demo.items import Item, State
    from voxint.standalone.demo.timeline import Interval, Stay
    from voxint.standalone.home import Home
    from voxint.wiring import Parts

FORMS = ("txt", "srt", "vtt", "json")
_LONG_AGO = timedelta(days=3650)
_LINES = 60
"""So many lines of a transcript are printed; the file has them all."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recording and what was made of it."""

    item: Item
    run: Run
    transcript: dict[str, Any] | None

    @property
    def text(self) -> str:
        """All that was said, as the transcript has it."""
        return " ".join(line["text"] for line in self.lines)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The transcript's lines."""
        return list(self.transcript["lines"]) if self.transcript else []

    @property
    def speakers(self) -> int:
        """How many speakers were found."""
        return len({line["label"] for line in self.lines if line["label"] is not None})


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that came out."""

    recorded: tuple[Recorded, ...]
    phases: tuple[Interval, ...]
    stays: tuple[Stay, ...]
    faults: tuple[str, ...]


def gather(parts: Parts, home: Home, items: Sequence[Item], state: State, into: Path) -> Outcome:
    """Read what came out, and leave NAME.txt, .srt, .vtt, .json and timeline.json in the folder."""
    until = state.done_at or parts.phase_store.now()
    events = parts.phase_store.events(state.begun_at - _LONG_AGO)
    before = [event for event in events if event.at <= state.begun_at][-1:]
    shown = [*before, *(event for event in events if state.begun_at < event.at <= until)]
    ledger = home.card_ledger.read_text(encoding="utf-8") if home.card_ledger.exists() else ""
    stays = timeline.settled(timeline.stays(ledger, state.begun_at), _living(home))
    stays = tuple(stay for stay in stays if stay.since <= until)
    phases = timeline.intervals(shown, state.begun_at, until)
    rows = json.dumps([phase.to_document() for phase in phases], indent=1)
    (into / "timeline.json").write_text(rows + "\n", encoding="utf-8")
    recorded = tuple(_recorded(parts, item, state.runs[item.sha256], into) for item in items)
    return Outcome(recorded, phases, stays, timeline.faults(stays, events, until))


def _recorded(parts: Parts, item: Item, run_id: int, into: Path) -> Recorded:
    run = parts.run_store.get(run_id)
    if run is None:
        raise KeyError(run_id)
    final = parts.run_store.results(run_id).get("finalize")
    if final is None:
        return Recorded(item, run, None)
    for form in FORMS:
        (into / f"{item.name}.{form}").write_bytes((run.folder / final["files"][form]).read_bytes())
    return Recorded(item, run, final["transcript"])


def _living(home: Home) -> frozenset[int]:
    return frozenset(process.pid for process in psutil.process_iter() if home.owns(process))


def tell(outcome: Outcome, into: Path, console: Console) -> None:
    """Print the timeline, the ledger beside it, and the transcripts."""
    console.print("\nWho had the GPU, from the history of phases (timeline.json):")
    begin = outcome.phases[0].since if outcome.phases else None
    for phase in outcome.phases:
        start = (phase.since - begin).total_seconds() if begin else 0
        console.print(f"  {start:7.1f} s  {phase.phase.value:18} {phase.seconds:7.1f} s  {phase.cause}")
    console.print("The same from the card's ledger, which each model process writes itself:")
    for stay in outcome.stays:
        _tell_stay(stay, begin, console)
    for recorded in outcome.recorded:
        _tell_transcript(recorded, into, console)


def _tell_stay(stay: Stay, begin: Any, console: Console) -> None:  # noqa: ANN401 - a moment or None
    start = (stay.since - begin).total_seconds() if begin else 0
    end = "and still is" if stay.until is None else f"to {(stay.until - begin).total_seconds() if begin else 0:7.1f} s"
    served = figures.count(stay.requests, "request")
    console.print(f"  {start:7.1f} s {end:12}  {stay.side:15} {stay.service} (process {stay.pid}), {served}")


def _tell_transcript(recorded: Recorded, into: Path, console: Console) -> None:
    name = printable(recorded.item.name)
    if recorded.transcript is None:
        console.print(f"\n{name}: {words(recorded.run)}")
        return
    files = f"{into / name}.{{{','.join(FORMS)}}}"
    found = figures.count(recorded.speakers, "speaker")
    console.print(f"\n{name}: {recorded.run.duration_seconds or 0:.0f} s, {found}; {files}")
    for notice in recorded.transcript["notices"]:
        console.print(f"  ({printable(notice)})")
    for line in recorded.lines[:_LINES]:
        console.print(f"  {line['start']:7.1f} s  {printable(line['speaker'])}: {printable(line['text'])}")
    if not recorded.lines:
        console.print("  (nothing is said)")
    if len(recorded.lines) > _LINES:
        console.print(f"  ... and {len(recorded.lines) - _LINES} lines more")
