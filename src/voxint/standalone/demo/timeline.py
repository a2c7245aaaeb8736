"""PURE: who had the GPU when: from the phase's own history, and from what the processes on the card wrote down.

The two come from different places: the history from the database, written by the tick; the ledger from each model process
itself. Where they disagree, something ran on the wrong side.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from voxint.gpu_phase.model import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from voxint.gpu_phase.store import Event

LANGUAGE_MODEL, AUDIO = "language model", "audio"
_HAS_IT = {
    Phase.LLM: LANGUAGE_MODEL,
    Phase.DRAINING_POST: LANGUAGE_MODEL,
    Phase.AUDIO: AUDIO,
    Phase.DRAINING: AUDIO,
}
_SIDES = {"llm": LANGUAGE_MODEL, "audio": AUDIO}


@dataclass(frozen=True, slots=True)
class Interval:
    """How long a phase lasted, and what led to it."""

    phase: Phase
    since: datetime
    until: datetime
    cause: str

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.until - self.since).total_seconds()

    def to_document(self) -> dict[str, Any]:
        """A row of timeline.json."""
        return {
            "phase": self.phase.value,
            "since": _iso(self.since),
            "until": _iso(self.until),
            "seconds": round(self.seconds, 3),
            "cause": self.cause,
        }


@dataclass(frozen=True, slots=True)
class Stay:
    """A model process on the card: from before it loaded until it left. `until` is None where it wrote no end."""

    side: str
    service: str
    pid: int
    since: datetime
    until: datetime | None = None
    requests: int = 0


def intervals(events: Sequence[Event], since: datetime, until: datetime) -> tuple[Interval, ...]:
    """The phases between two moments.

    Args:
        events: the changes of phase, oldest first; also the last one before `since`.
        since: where the picture begins.
        until: where it ends.
    """
    ends = [*(event.at for event in events), until][1:]
    found = (
        Interval(event.to_phase, max(event.at, since), min(end, until), event.cause.value)
        for event, end in zip(events, ends, strict=True)
    )
    return tuple(each for each in found if each.until > each.since)


def hands(phases: Iterable[Interval]) -> tuple[str, ...]:
    """Who had the GPU, one after the other."""
    order: list[str] = []
    for each in phases:
        owner = _HAS_IT.get(each.phase)
        if owner is not None and order[-1:] != [owner]:
            order.append(owner)
    return tuple(order)


def stays(ledger: str, since: datetime) -> tuple[Stay, ...]:
    """The processes that were on the card at a moment or later, from the ledger's text. Broken lines are passed over."""
    open_stays: dict[int, Stay] = {}
    ended: list[Stay] = []
    for entry in _entries(ledger):
        pid, event, at = entry["pid"], entry["event"], entry["at"]
        if event == "start":
            if pid in open_stays:  # the number was given out again; the first one left without a word
                ended.append(open_stays.pop(pid))
            open_stays[pid] = Stay(_SIDES.get(entry["side"], entry["side"]), entry["service"], pid, at)
        elif pid in open_stays and event == "request_end":
            open_stays[pid] = replace(open_stays[pid], requests=open_stays[pid].requests + 1)
        elif pid in open_stays and event == "end":
            ended.append(replace(open_stays.pop(pid), until=at))
    found = (*ended, *open_stays.values())
    return tuple(sorted((s for s in found if s.until is None or s.until >= since), key=lambda stay: stay.since))


def faults(found: Sequence[Stay], events: Sequence[Event], until: datetime) -> tuple[str, ...]:
    """What was on the card beside the other side, or while the history says that it was the other's."""
    return (*_overlaps(found, until), *_strangers(found, events, until))


def _overlaps(found: Sequence[Stay], until: datetime) -> Iterable[str]:
    for number, one in enumerate(found):
        for two in found[number + 1 :]:
            if one.side != two.side and _end(one, until) > two.since and _end(two, until) > one.since:
                yield f"{_who(one)} and {_who(two)} were on the card at the same time"


def _strangers(found: Sequence[Stay], events: Sequence[Event], until: datetime) -> Iterable[str]:
    windows = _audio_windows(events, until)
    for stay in found:
        end = _end(stay, until)
        if stay.side == AUDIO and not any(begin <= stay.since and end <= close for begin, close in windows):
            yield f"{_who(stay)} was on the card while the history says that audio had no lease of it"
        if stay.side == LANGUAGE_MODEL and any(stay.since < close and end > begin for begin, close in windows):
            yield f"{_who(stay)} was on the card while the history says that audio had it"


def _audio_windows(events: Sequence[Event], until: datetime) -> list[tuple[datetime, datetime]]:
    """From the grant (starting_services) until the services are confirmed stopped (releasing, or error)."""
    windows: list[tuple[datetime, datetime]] = []
    begin: datetime | None = None
    inside = {Phase.STARTING_SERVICES, Phase.AUDIO, Phase.DRAINING}
    for event in events:
        if begin is None and event.to_phase in inside:
            begin = event.at
        elif begin is not None and event.to_phase not in inside | {Phase.STOPPING_SERVICES}:
            windows.append((begin, event.at))
            begin = None
    return [*windows, *([(begin, until)] if begin is not None else [])]


def _end(stay: Stay, until: datetime) -> datetime:
    """A process that was killed wrote no end. It is taken to have lived for as long as it could have."""
    return stay.until or until


def settled(found: Sequence[Stay], living: frozenset[int]) -> tuple[Stay, ...]:
    """Ends for the stays of processes that are gone and wrote none: the latest moment that the lock allows.

    The lock let the next process of the other side in, so the killed one was gone by then.
    """
    done = []
    for stay in found:
        if stay.until is None and stay.pid not in living:
            later = [other.since for other in found if other.since > stay.since and other.side != stay.side]
            stay = replace(stay, until=min(later)) if later else stay  # noqa: PLW2901
        done.append(stay)
    return tuple(done)


def _who(stay: Stay) -> str:
    return f"{stay.service} (process {stay.pid})"


def _entries(ledger: str) -> Iterable[dict[str, Any]]:
    for line in ledger.splitlines():
        try:
            entry = json.loads(line)
            yield {
                "event": entry["event"],
                "side": entry["side"],
                "service": entry["service"],
                "pid": int(entry["pid"]),
                "at": _moment(entry["at"]),
            }
        except (ValueError, KeyError, TypeError):
            continue


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
