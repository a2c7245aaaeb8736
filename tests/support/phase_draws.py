"""Hypothesis strategies for the machine: rows that the database would take, and ticks that could have been made."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from phase_calls import FIELDS

from voxint.gpu_phase.model import (
    HOLDER,
    Condition,
    LlmSeen,
    Phase,
    PhaseState,
    Request,
    RequestKind,
    ServiceSeen,
    WorkSeen,
)
from voxint.gpu_phase.outcomes import Done, Failed, Free, Granted, Held, Lost, Pending, Refused
from voxint.gpu_phase.plan import Call, Seen, may, plan
from voxint.gpu_phase.policy import Policy
from voxint.gpu_phase.windows import ALWAYS, Windows

REPEATABLE = settings(derandomize=True, deadline=None, max_examples=30, print_blob=True)
"""The same examples in every run: a failure names the example, and it fails again."""

NAMES = ("whisper", "pyannote", "titanet")
NEEDS_LEASE = frozenset({Phase.STARTING_SERVICES, Phase.AUDIO, Phase.DRAINING})
NO_LEASE = frozenset({Phase.LLM, Phase.DRAINING_POST, Phase.ACQUIRING})

moments = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
waits = st.timedeltas(timedelta(0), timedelta(days=400_000))
texts = st.text(max_size=400)
ids = st.text(min_size=1, max_size=8)


def near(now: datetime) -> st.SearchStrategy[datetime]:
    """Moments around `now`, the very moment often among them."""
    steps = st.sampled_from([0, 1, -1, 10**6, -(10**6), 30 * 10**6, -30 * 10**6, 600 * 10**6, -600 * 10**6])
    microseconds = steps | st.integers(-(10**11), 10**11)
    return microseconds.map(lambda number: now + timedelta(microseconds=number))


minutes = st.integers(0, 24 * 60 - 1)
stretches = st.tuples(minutes, minutes).filter(lambda stretch: stretch[0] != stretch[1])
hours = st.just(ALWAYS) | st.lists(stretches, max_size=3).map(lambda found: Windows(tuple(found), UTC))


@st.composite
def policies(draw: Any) -> Policy:
    lengths = st.integers(0, 2000).map(lambda number: timedelta(seconds=number))
    tick = timedelta(seconds=draw(st.integers(5, 120)))
    dwell = draw(lengths)
    return Policy(
        tick=tick,
        min_dwell=dwell,
        max_audio=dwell + draw(lengths),
        acquire_limit=draw(lengths),
        start_limit=draw(lengths),
        stop_limit=draw(lengths),
        release_limit=draw(lengths),
        windows=draw(hours),
    )


@st.composite
def states(draw: Any, phase: Phase, now: datetime) -> PhaseState:
    leased = phase in NEEDS_LEASE or (phase not in NO_LEASE and draw(st.booleans()))
    optional = st.none() | near(now)
    failures = draw(st.sampled_from([0, 1, 2, 5, 6, 1000]))
    return PhaseState(
        phase,
        min(draw(near(now)), now),
        lease_id=draw(ids) if leased else None,
        lease_expires_at=draw(optional) if leased else None,
        lease_lost=leased and phase not in NEEDS_LEASE and draw(st.booleans()),
        last_error=draw(st.none() | st.text(max_size=20)),
        failures=failures,
        retry_after=draw(optional),
        cycle_failed=draw(st.booleans()),
        llm_ready=phase is Phase.LLM and draw(st.booleans()),
        llm_checked_at=draw(optional),
    )


def requests(now: datetime) -> st.SearchStrategy[Request | None]:
    made_in = st.none() | st.sampled_from(Phase)
    made = st.builds(Request, st.integers(1, 9), st.sampled_from(RequestKind), made_in, st.just(now), st.just("ada"))
    return st.none() | made


def found(*, healthy: bool) -> st.SearchStrategy[tuple[ServiceSeen, ...]]:
    def service(name: str) -> st.SearchStrategy[ServiceSeen]:
        looked = st.sampled_from(Condition)
        return st.builds(
            lambda c, h, d, p: _seen(name, c, healthy=healthy and h, detail=d, placed=p if healthy else ("", False)),
            looked,
            st.booleans(),
            st.sampled_from(["", "exited (1)"]),
            placements,
        )

    mixed = st.tuples(*(service(name) for name in NAMES))
    same = st.sampled_from(Condition).map(
        lambda c: tuple(ServiceSeen(n, c, healthy=healthy and c is Condition.RUNNING) for n in NAMES)
    )
    return mixed | same


WRONG = "pyannote runs on cpu, expected cuda\u202e"
placements = st.sampled_from([("", False), ("", False), (WRONG, False), (WRONG, True)])


def _seen(name: str, condition: Condition, *, healthy: bool, detail: str, placed: tuple[str, bool]) -> ServiceSeen:
    up = condition is Condition.RUNNING
    words, barred = placed if up else ("", False)
    return ServiceSeen(name, condition, healthy=healthy and up, detail=detail, placement=words, barred=barred)


def answers(call: Call, now: datetime) -> st.SearchStrategy[Any]:
    """Everything that a call may bring."""
    end = st.none() | near(now)
    failure = st.builds(Failed, texts)
    grant = st.builds(Granted, ids, end, st.none() | texts)
    holder = st.sampled_from([HOLDER, "other", None])
    match call:
        case Call.PROBE_LLM:
            return st.builds(LlmSeen, st.booleans(), st.sampled_from(["", "loading"]))
        case Call.INSPECT:
            return found(healthy=False)
        case Call.HEALTH:
            return found(healthy=True)
        case Call.STATUS:
            return st.one_of(st.just(Free()), failure, st.builds(Held, holder, st.none() | ids, end))
        case Call.ACQUIRE:
            refusal = st.builds(Refused, holder, st.none() | waits, st.none() | texts)
            return st.one_of(st.just(Pending()), failure, grant, refusal)
        case Call.RENEW:
            return st.one_of(grant, st.builds(Lost, texts), failure)
        case Call.RELEASE:
            return st.one_of(st.just(Done()), st.just(Pending()), failure)
        case _:
            return st.none()


@st.composite
def ticks(draw: Any, phase: Phase) -> tuple[PhaseState, Seen, Policy]:
    """A stored row, and what one tick of it saw: only the calls that the plan makes, each with any answer."""
    now = draw(moments)
    state = draw(states(phase, now))
    request = draw(requests(now))
    work = WorkSeen(draw(st.booleans()), draw(st.booleans()), draw(st.booleans()))
    seen: dict[str, Any] = {"request": request, "hold_until": draw(st.none() | near(now))}
    for call in plan(state, request):
        if call in FIELDS and may(call, Seen(now, work, **seen)):
            seen[FIELDS[call]] = draw(answers(call, now))
    return state, Seen(now, work, **seen), draw(policies())
