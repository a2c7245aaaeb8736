"""What was last seen of each service's placement, how often this start restarted it, and this host's own speeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert

from voxint.db import clock
from voxint.db.tables import PLACEMENT, PLACEMENT_BASELINE
from voxint.services.placement.judge import Evidence, Verdict

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Engine

    from voxint.services.placement.judge import Judgement


@dataclass(frozen=True, slots=True)
class Placed:
    """The last verdict on a service, as it was stored."""

    service: str
    verdict: Verdict
    expected: str
    device: str | None
    evidence: Evidence
    why: str
    seen_at: datetime
    restarts: int


@dataclass(frozen=True, slots=True)
class Baseline:
    """How fast a service works on this host's GPU, in units a second."""

    rate: float
    unit: str
    made_at: datetime


class PlacementStore:
    """Placement in the database. Every method is one short transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def record(self, judgement: Judgement) -> None:
        """Keep a verdict in place of the one before; the count of restarts stays."""
        values = {
            "verdict": judgement.verdict.value,
            "expected": str(judgement.expected),
            "device": judgement.device.value if judgement.device else None,
            "evidence": judgement.evidence.value,
            "why": judgement.why,
        }
        with self._engine.begin() as connection:
            values_now = values | {"seen_at": clock.read(connection)}
            connection.execute(
                insert(PLACEMENT)
                .values(service=judgement.service, **values_now)
                .on_conflict_do_update(index_elements=[PLACEMENT.c.service], set_=values_now)
            )

    def restarts(self, service: str, starting_since: datetime) -> int:
        """How many times the start that began then has restarted a service."""
        with self._engine.begin() as connection:
            counted = connection.execute(
                select(PLACEMENT.c.restarts).where(
                    PLACEMENT.c.service == service, PLACEMENT.c.starting_since == starting_since
                )
            ).scalar_one_or_none()
        return counted or 0

    def count_restart(self, service: str, starting_since: datetime) -> None:
        """Count one more, before it is made: a crash in between costs a restart, and never adds one."""
        with self._engine.begin() as connection:
            row = connection.execute(
                select(PLACEMENT.c.starting_since, PLACEMENT.c.restarts)
                .where(PLACEMENT.c.service == service)
                .with_for_update()
            ).one()
            again = row.restarts if row.starting_since == starting_since else 0
            connection.execute(
                PLACEMENT.update()
                .where(PLACEMENT.c.service == service)
                .values(starting_since=starting_since, restarts=again + 1)
            )

    def placed(self) -> dict[str, Placed]:
        """The last verdict on every service, by name."""
        with self._engine.begin() as connection:
            rows = connection.execute(select(PLACEMENT)).all()
        return {
            row.service: Placed(
                row.service,
                Verdict(row.verdict),
                row.expected,
                row.device,
                Evidence(row.evidence),
                row.why,
                row.seen_at,
                row.restarts,
            )
            for row in rows
        }

    def baselines(self) -> dict[str, Baseline]:
        """This host's own speeds, by service."""
        with self._engine.begin() as connection:
            rows = connection.execute(select(PLACEMENT_BASELINE)).all()
        return {row.service: Baseline(row.rate, row.unit, row.made_at) for row in rows}

    def gpu_rate(self, service: str) -> float | None:
        """How fast a service is on this host's GPU; None where that was never measured."""
        kept = self.baselines().get(service)
        return kept.rate if kept else None

    def keep_baseline(self, service: str, rate: float, unit: str) -> None:
        """Keep a speed that was measured on the GPU, in place of the one before."""
        values = {"rate": rate, "unit": unit, "made_at": func.voxint_now()}
        with self._engine.begin() as connection:
            connection.execute(
                insert(PLACEMENT_BASELINE)
                .values(service=service, **values)
                .on_conflict_do_update(index_elements=[PLACEMENT_BASELINE.c.service], set_=values)
            )

    def forget_baseline(self, service: str) -> bool:
        """Take a speed away. False where there was none."""
        with self._engine.begin() as connection:
            gone = connection.execute(delete(PLACEMENT_BASELINE).where(PLACEMENT_BASELINE.c.service == service))
        return gone.rowcount > 0
