"""The read model: one look at the database, and everything that people are shown comes from it.

The look is one query in PostgreSQL's own words: the console and the workers send it over their engine, and `gpu-phase
status` over a bare connection, as a command that looks once need not pay for more.
"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

from voxint.gpu_phase.model import Lane, Phase, PhaseState, Request, RequestKind
from voxint.gpu_phase.view import STATUS_BOUND, PhaseView, lane_view

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from voxint.gpu_phase.policy import Policy
    from voxint.gpu_phase.store import PhaseStore
    from voxint.settings import Settings

    Row = Mapping[str, Any]
    Ask = Callable[[str, Mapping[str, object]], Sequence[Row]]

STATE_COLUMNS = (
    "phase",
    "phase_since",
    "lease_id",
    "lease_expires_at",
    "lease_lost",
    "last_error",
    "failures",
    "retry_after",
    "cycle_failed",
    "llm_ready",
    "llm_checked_at",
    "note",
)
"""The columns of `gpu_phase` that decisions depend on: a PhaseState's fields."""


def _counted(lane: str, state: str) -> str:
    """The state stands in the text: a partial index is not used for a parameter."""
    waits = f"lane = '{lane}' AND state = '{state}' AND NOT kind = ANY(%(ahead)s)"
    found = f"SELECT 1 FROM work_item WHERE {waits}"  # noqa: S608 - called with constants
    return f"(SELECT count(*) FROM ({found} LIMIT %(bound)s) counted)"  # noqa: S608


_LOOK = f"""
    SELECT voxint_now() AS now, {", ".join(f"p.{name}" for name in STATE_COLUMNS)}, p.ticked_at, p.llm_silent_since,
        r.id AS request, r.kind, r.made_in, r.requested_at, r.requested_by,
        c.hold_until, c.hold_by, c.paused_at, c.paused_by,
        {_counted("gpu", "queued")} AS gpu_waiting, {_counted("gpu", "running")} AS gpu_running,
        {_counted("post", "queued")} AS post_waiting, {_counted("post", "running")} AS post_running
    FROM (SELECT 1) AS always
        LEFT JOIN gpu_phase p ON true
        LEFT JOIN work_control c ON true
        LEFT JOIN LATERAL
            (SELECT * FROM gpu_phase_request WHERE consumed_at IS NULL ORDER BY id DESC LIMIT 1) r ON true
"""  # noqa: S608 - only names that stand in this file are put in
_LAST_END = """
    SELECT to_phase FROM gpu_phase_event WHERE to_phase IN ('llm', 'audio', 'error') ORDER BY id DESC LIMIT 1
"""
"""Where the last turn ended: from `error` the only way to `llm` is the hand-back that is tried again."""


def look(store: PhaseStore, settings: Settings, *, bound: int = STATUS_BOUND) -> PhaseView:
    """Read the phase as it is now. Nothing is written, and no request is made to anybody else.

    Args:
        store: the phase in the database.
        settings: the policy's numbers.
        bound: count each lane up to this; for pages that look often.
    """
    return read(store.rows, settings.policy, bound)


def read(ask: Ask, policy: Policy, bound: int = STATUS_BOUND) -> PhaseView:
    """The same over any connection.

    Args:
        ask: sends a query with values in the driver's form, `%(name)s`, and gives its rows by column.
        policy: the operator's numbers.
        bound: count each lane up to this.
    """
    row = ask(_LOOK, {"bound": bound, "ahead": sorted(policy.ahead)})[0]
    now = row["now"].astimezone(UTC)
    state = _state(row)
    gpu, post = ((row[f"{lane}_waiting"], row[f"{lane}_running"]) for lane in ("gpu", "post"))
    return PhaseView(
        policy=policy,
        now=now,
        state=state,
        ticked_at=row["ticked_at"],
        request=_request(row),
        gpu_lane=lane_view(Lane.GPU, state, now, policy, gpu),
        post_lane=lane_view(Lane.POST, state, now, policy, post),
        hold_until=row["hold_until"],
        hold_by=row["hold_by"],
        paused_at=row["paused_at"],
        paused_by=row["paused_by"],
        hand_back_failed=_hand_back_failed(ask, state),
        llm_silent_since=row["llm_silent_since"],
    )


def _state(row: Row) -> PhaseState | None:
    if row["phase"] is None:
        return None
    values = {name: row[name] for name in STATE_COLUMNS}
    return PhaseState(**{**values, "phase": Phase(row["phase"])})


def _request(row: Row) -> Request | None:
    if row["request"] is None:
        return None
    made_in = Phase(row["made_in"]) if row["made_in"] else None
    return Request(row["request"], RequestKind(row["kind"]), made_in, row["requested_at"], row["requested_by"])


def _hand_back_failed(ask: Ask, state: PhaseState | None) -> bool:
    """Whether this hand-back has been in `error` before."""
    if state is None or state.phase not in {Phase.STOPPING_SERVICES, Phase.RELEASING}:
        return state is not None and state.phase is Phase.ERROR
    ends = ask(_LAST_END, {})
    return bool(ends) and ends[0]["to_phase"] == Phase.ERROR
