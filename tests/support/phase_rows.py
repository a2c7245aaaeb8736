"""Rows of the edge tables: a sentence of the rules, a stored state, what a tick saw, and all that must come of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from voxint.gpu_phase.decide import decide
from voxint.gpu_phase.model import (
    EDGES,
    Cause,
    Condition,
    Cut,
    Lane,
    LlmSeen,
    Phase,
    PhaseState,
    Request,
    RequestKind,
    RequestOutcome,
    ServiceSeen,
    Transition,
    WorkSeen,
)
from voxint.gpu_phase.outcomes import Granted
from voxint.gpu_phase.plan import Seen
from voxint.gpu_phase.policy import Policy
from voxint.gpu_phase.windows import Windows

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
JUST = timedelta(microseconds=1)
POLICY = Policy(
    tick=timedelta(seconds=10),
    min_dwell=timedelta(seconds=100),
    max_audio=timedelta(seconds=1000),
    acquire_limit=timedelta(seconds=60),
    start_limit=timedelta(seconds=70),
    stop_limit=timedelta(seconds=80),
    release_limit=timedelta(seconds=90),
)
"""Every number differs from every other, so that no limit can stand in for another one."""

HOURS_OVER = replace(POLICY, windows=Windows.parse("09:00-12:00", UTC))
"""With hours for audio that end at the rows' moment."""

S, R, U = Condition.STOPPED, Condition.RUNNING, Condition.UNKNOWN
READY, NOT_READY = LlmSeen(ready=True), LlmSeen(ready=False, detail="503 from http://llm: loading")


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def ago(number: float) -> datetime:
    return NOON - timedelta(seconds=number)


def ahead(number: float) -> datetime:
    return NOON + timedelta(seconds=number)


def services(*conditions: Condition, healthy: bool = False, detail: str = "") -> tuple[ServiceSeen, ...]:
    names = ("whisper", "pyannote", "titanet")
    return tuple(ServiceSeen(n, c, healthy=healthy, detail=detail) for n, c in zip(names, conditions, strict=False))


STOPPED = services(S, S, S)
RUNNING = services(R, R, R)
HEALTHY = services(R, R, R, healthy=True)
UNKNOWN = services(S, U, S, detail="no answer")
RENEWED = Granted("b7c1", ahead(500))


def state(phase: Phase, age: float = 10, **fields: Any) -> PhaseState:
    return PhaseState(phase, ago(age), **fields)


def leased(phase: Phase, age: float = 10, **fields: Any) -> PhaseState:
    return state(phase, age, **{"lease_id": "b7c1", "lease_expires_at": ahead(300)} | fields)


def seen(**fields: Any) -> Seen:
    return Seen(NOON, fields.pop("work", WorkSeen()), **fields)


def audio_now(made_in: Phase | None) -> Request:
    return Request(7, RequestKind.AUDIO_NOW, made_in, ago(1), "ada")


def release(made_in: Phase | None) -> Request:
    return Request(7, RequestKind.RELEASE, made_in, ago(1), "ada")


@dataclass(frozen=True)
class Row:
    """`changes` are all the fields that differ from the stored state; what a step always does is added."""

    sentence: str
    before: PhaseState
    seen: Seen
    phase: Phase
    cause: Cause
    changes: dict[str, Any] = field(default_factory=dict)
    request: RequestOutcome | None = None
    cut: Cut | None = None
    drained: Lane | None = None
    policy: Policy = POLICY

    def expected(self) -> Transition:
        always: dict[str, Any] = {"llm_ready": False, "note": None}
        if self.phase is not self.before.phase:
            always |= {"phase": self.phase, "phase_since": NOON, "llm_checked_at": None}
            if self.phase is Phase.LLM:
                always |= {"lease_id": None, "lease_expires_at": None, "lease_lost": False}
        after = replace(self.before, **(always | self.changes))
        return Transition(self.before, after, self.cause, self.request, self.cut, self.drained)

    def check(self) -> None:
        got = decide(self.before, self.seen, self.policy)
        assert got == self.expected()
        if got.moved:
            assert self.cause in EDGES[self.before.phase, self.phase]


def failed(reason: str, *, failures: int = 1, wait: float = 30) -> dict[str, Any]:
    """What a failed step changes: `wait` seconds until the next try."""
    return {"last_error": reason, "failures": failures, "retry_after": ahead(wait), "cycle_failed": True}


def ids(rows: list[Row]) -> list[str]:
    return [row.sentence for row in rows]
