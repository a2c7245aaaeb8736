"""Placement in rows of text: services, and the regimes of a log. Pure; command line and pages only lay them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxint.services.placement.judge import Verdict
from voxint.services.placement.regimes import LONG_READ_CHARACTERS, Regime, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxint.services.placement.regimes import Start
    from voxint.services.placement.view import Row

REGIME_HEADS = ("process start (UTC)", "regime", "rate", "reads")


def regime_rows(starts: Sequence[Start]) -> list[tuple[str, str, str, str]]:
    """A row a process: start, regime, rate over its long reads, and how many reads that is."""
    return [(_began(start), start.regime.value, _rate(start), _reads(start)) for start in starts]


def regime_summary(starts: Sequence[Start]) -> list[str]:
    """What the table says, in sentences."""
    counts = counted(starts)
    timed = len(starts) - counts[Regime.UNTIMED]
    if not starts:
        return ["The log holds no process start and no read: nothing can be told."]
    parts = [
        f"{counts[regime]} {regime.value}"
        for regime in (Regime.GPU, Regime.CPU, Regime.MIXED, Regime.BETWEEN)
        if counts[regime]
    ]
    lines = [f"{_many(timed, 'start')} timed: {', '.join(parts)}." if parts else "No start could be timed."]
    if counts[Regime.UNTIMED]:
        lines.append(
            f"{_many(counts[Regime.UNTIMED], 'start')} had no read of {LONG_READ_CHARACTERS:,} or more characters: "
            "shorter ones do not tell."
        )
    fallen = [start for start in starts if start.fell_back]
    lines += [f"Started {_began(start)}: it printed: {start.fell_back}" for start in fallen]
    if counts[Regime.GPU] and counts[Regime.CPU] and not fallen and not counts[Regime.MIXED]:
        lines.append(
            "Each process kept one speed, and only a start changed it: the device is drawn anew at each start. "
            "docs/explanation/placement.md says why; docs/how-to/check-a-new-image.md, how to end it."
        )
    return lines


def regime_values(starts: Sequence[Start]) -> list[dict[str, object]]:
    """The same as values for JSON. Times are ISO 8601, UTC."""
    return [
        {
            "started_at": _iso(start) if start.exact and not start.cut else None,
            "started_before": None if start.exact and not start.cut else _iso(start),
            "regime": None if start.regime is Regime.UNTIMED else start.regime.value.lower(),
            "characters_per_second": None if start.rate is None else round(start.rate, 1),
            "reads": len(start.reads),
            "short_reads": start.short_reads,
            "fell_back": start.fell_back,
        }
        for start in starts
    ]


def _iso(start: Start) -> str | None:
    return None if start.at is None else start.at.isoformat().replace("+00:00", "Z")


def _began(start: Start) -> str:
    if start.at is None:
        return "unknown"
    text = f"{start.at:%Y-%m-%d %H:%M}"
    if start.cut:
        return f"before {text}"
    return text if start.exact else f"by {text}"


def _rate(start: Start) -> str:
    return "-" if start.rate is None else f"{start.rate:,.0f} c/s"


def _reads(start: Start) -> str:
    if start.reads:
        return str(len(start.reads))
    if start.short_reads:
        return f"none long enough to tell ({_many(start.short_reads, 'short one')})"
    return "none"


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


HEADS = ("service", "expected", "verdict", "device", "why")


def row_cells(row: Row) -> tuple[str, ...]:
    """A row of the table of services."""
    return (row.service, row.expected, row.verdict.value.replace("_", " "), row.device or "-", _why(row))


def row_words(row: Row) -> str:
    """The same as a sentence, with what to do about a wrong one."""
    match row.verdict:
        case Verdict.WRONG:
            return f"runs on {row.device or 'another device'}, expected {row.expected}: {_why(row)}. {WHAT_TO_DO}"
        case Verdict.SLOW:
            return f"is slow: {_why(row)}. That alone proves no wrong device; {WHAT_TO_DO}"
        case Verdict.OK:
            return f"runs on {row.device or 'the GPU'}: {_why(row)}"
        case _:
            return f"cannot be told: {_why(row)}"


WHAT_TO_DO = "docs/explanation/placement.md says what may be the matter"


def row_values(row: Row) -> dict[str, object]:
    """The same as values for JSON; `seen_at` is null for what was seen just now."""
    return {
        "service": row.service,
        "expected": row.expected,
        "verdict": row.verdict.value,
        "device": row.device,
        "evidence": row.evidence,
        "why": row.why,
        "seen_at": row.seen_at.isoformat().replace("+00:00", "Z") if row.seen_at else None,
        "restarts": row.restarts,
    }


def _why(row: Row) -> str:
    when = f" (seen {row.seen_at:%Y-%m-%d %H:%M} UTC; it does not run now)" if row.seen_at else ""
    tried = f", after {_many(row.restarts, 'restart')}" if row.restarts and row.verdict is Verdict.WRONG else ""
    return f"{row.why}{tried}{when}"
