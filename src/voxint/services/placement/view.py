"""Where every model service works, for people: seen now where it runs, else as the last tick that looked had it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxint.services.placement.expectations import expectations
from voxint.services.placement.judge import Evidence, Verdict, judge
from voxint.services.placement.observe import Sources, observe

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from voxint.services.placement.judge import Expectation, Observation
    from voxint.services.placement.store import Placed
    from voxint.settings import Settings


@dataclass(frozen=True, slots=True)
class Row:
    """One service. `seen_at` is when it was seen; None where that is now, and where it never was."""

    service: str
    expected: str
    verdict: Verdict
    device: str | None
    evidence: Evidence
    why: str
    live: bool = False
    """Whether it was seen just now."""
    seen_at: datetime | None = None
    restarts: int = 0

    @property
    def expects(self) -> bool:
        """Whether anything is expected of it."""
        return self.verdict is not Verdict.NOT_EXPECTED


def rows(settings: Settings, stored: Mapping[str, Placed], from_where: Sources | None = None) -> tuple[Row, ...]:
    """A row a service, in the order of the settings.

    Args:
        settings: the services, and what is expected of them.
        stored: the last verdicts.
        from_where: evidence besides the health answers.
    """
    expected = expectations(settings.compute_tier, settings.services, settings.placement_expected)
    asked = [name for name, one in expected.items() if one.devices]
    seen = observe(settings, asked, from_where or Sources()) if asked else {}
    return tuple(
        _row(name, one, seen.get(name), stored.get(name), settings.compute_tier) for name, one in expected.items()
    )


def _row(name: str, expected: Expectation, seen: Observation | None, stored: Placed | None, tier: str) -> Row:
    wanted = str(expected)
    if not expected.devices:
        why = f"nothing is expected of it on COMPUTE_TIER={tier}"
        return Row(name, wanted, Verdict.NOT_EXPECTED, None, Evidence.NONE, why)
    if seen is not None and seen.running:
        found = judge(name, expected, seen)
        device = found.device.value if found.device else None
        restarts = stored.restarts if stored else 0
        return Row(name, wanted, found.verdict, device, found.evidence, found.why, live=True, restarts=restarts)
    if stored is None:
        return Row(name, wanted, Verdict.UNKNOWN, None, Evidence.NONE, "it does not run, and was never seen")
    return Row(
        name,
        stored.expected,
        stored.verdict,
        stored.device,
        stored.evidence,
        stored.why,
        seen_at=stored.seen_at,
        restarts=stored.restarts,
    )
