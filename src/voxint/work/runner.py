"""Runs one piece of claimed work: its heart beats in a thread, and whatever happens ends the claim in words."""

from __future__ import annotations

import logging
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Self

from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from voxint.gpu_phase.reasons import clean
from voxint.recordings.errors import AttemptFailed, ClaimLost, NotNow, StageFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from types import TracebackType
    from typing import Any

    from voxint.gpu_phase.gate import Claim, Gate
    from voxint.gpu_phase.model import Lane

    Work = Callable[[Claim, "Heart"], dict[str, Any]]

log = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0
"""How long to wait before a result is offered again to a database that was away."""


class Heart:
    """Beats for a claim while its work runs. `lost` is set when the claim is no longer ours.

    With each beat it also gives back the work of the dead: where every worker is busy for hours and GPU sharing is off,
    nobody takes the sweep's message, and there is no tick.
    """

    def __init__(self, gate: Gate, claim: Claim, every: timedelta, limit: timedelta) -> None:
        self._gate = gate
        self._claim = claim
        self._every = every.total_seconds()
        self._limit = limit.total_seconds()
        self._end = Event()
        self._progress: float | None = None
        self._thread = Thread(target=self._beat, name=f"heart-{claim.item_id}", daemon=True)
        self.lost = Event()

    def outlasts(self, begun: float) -> bool:
        """Wait a moment, for what cannot be written now. False when the claim is lost, or its limit has passed."""
        return monotonic() - begun < self._limit and not self.lost.wait(AGAIN_SECONDS)

    def progress(self, share: float) -> None:
        """Tell how far the work is, 0 to 1; it is written with the next beat."""
        self._progress = min(max(share, 0.0), 1.0)

    def __enter__(self) -> Self:
        """Start beating."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop beating."""
        self._end.set()
        self._thread.join(timeout=self._every + 5)

    def _beat(self) -> None:
        heard = monotonic()
        while not self._end.wait(self._every):
            try:
                alive = self._gate.beat(self._claim, self._progress)
                heard = monotonic()
                self._gate.reap()
            except SQLAlchemyError as error:
                log.warning("could not write a heartbeat: %s", type(error).__name__)
                alive = monotonic() - heard < self._limit
            if not alive:
                self.lost.set()
                return


def work_once(gate: Gate, lane: Lane, work: Work, *, every: timedelta, limit: timedelta) -> Claim | None:
    """Claim the lane's next piece of work and do it. None when there is nothing to take."""
    claim = gate.claim(lane)
    if claim is None:
        return None
    with Heart(gate, claim, every, limit) as heart:
        _do(gate, claim, work, heart)
    return claim


def _do(gate: Gate, claim: Claim, work: Work, heart: Heart) -> None:
    name = f"run {claim.run_id} {claim.kind}"
    try:
        data = work(claim, heart)
    except ClaimLost:
        log.info("%s: the claim was taken back; what was done is thrown away", name)
    except NotNow as error:
        log.info("%s: not now: %s", name, error)
        gate.not_now(claim, clean(str(error)), error.retry_in)
    except StageFailed as error:
        log.warning("%s: failed: %s", name, error)
        gate.fail(claim, clean(str(error)), for_good=True)
    except AttemptFailed as error:  # expected now and then: its words say all that a trace would
        log.warning("%s: attempt %d failed: %s", name, claim.attempt, error)
        gate.fail(claim, clean(f"{claim.kind}: {error}"))
    except Exception as error:  # whatever it was, the claim ends with it, and the run goes on or fails in words
        if heart.lost.is_set():
            log.info("%s: stopped, as the claim was taken back", name)
            return
        log.exception("%s: attempt %d failed", name, claim.attempt)
        gate.fail(claim, clean(f"{claim.kind}: {error or type(error).__name__}"))
    else:
        if _completed(gate, claim, data, heart):
            log.info("%s: done", name)
        else:
            log.info("%s: finished after the claim was taken back; the result is thrown away", name)


def _completed(gate: Gate, claim: Claim, data: dict[str, Any], heart: Heart) -> bool:
    """End the claim with its result. A database that is away for a moment, as in a restart, costs no hour of work."""
    begun = monotonic()
    while True:
        try:
            return gate.complete(claim, data)
        except (OperationalError, InterfaceError) as error:
            log.warning("could not store the result of run %d %s: %s", claim.run_id, claim.kind, type(error).__name__)
            if not heart.outlasts(begun):
                raise
