"""Looks at the devices of the services that are up, in every tick of starting_services and audio, and acts as told.

Only while the services start may anything be done about a wrong one, and only about that one: it is stopped, counted,
and the next tick starts it again. In the middle of a window it is said, and nothing else. Unknown and slow are never
acted on. Handing the GPU back never passes through here.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from sqlalchemy.exc import SQLAlchemyError

from voxint.gpu_phase.model import Condition, Phase
from voxint.services.placement.expectations import expectations
from voxint.services.placement.judge import Verdict, judge
from voxint.services.placement.observe import Sources, observe
from voxint.services.placement.warm_up import WarmUps

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime

    from voxint.gpu_phase.model import PhaseState, ServiceSeen
    from voxint.services.placement.judge import Judgement, Observation
    from voxint.services.placement.store import PlacementStore
    from voxint.settings import Settings

_log = logging.getLogger(__name__)


class Stopper(Protocol):
    """The part of a control of services that a restart needs: what is stopped, the next start brings back."""

    def inspect(self) -> tuple[ServiceSeen, ...]:
        """The condition of each service."""

    def stop(self, only: Collection[str] | None = None) -> None:
        """Begin, or go on with, stopping these services; waits a few seconds at most."""


class PlacementWatch:
    """What a tick asks about placement. Never raises.

    Args:
        settings: what is expected, and what a wrong device leads to.
        store: the last verdicts, and how often this start has restarted a service.
        services: stops a service that is to be restarted.
        from_where: evidence besides the health answers.
        look_at: collects the observations, given which services and which of them were warmed; observe by default.
        warm_ups: the first requests of services that need one.
    """

    def __init__(
        self,
        settings: Settings,
        store: PlacementStore,
        services: Stopper,
        from_where: Sources | None = None,
        *,
        look_at: Callable[[Collection[str], Collection[str]], Mapping[str, Observation]] | None = None,
        warm_ups: WarmUps | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._services = services
        self._sources = from_where or Sources()
        self._look_at = look_at or self._observe
        self._warm_ups = warm_ups or WarmUps()
        self._going: set[str] = set()
        """Those told to stop, to be started anew, that were still there when the call came back."""
        self._expected = expectations(settings.compute_tier, settings.services, settings.placement_expected)

    def look(self, services: tuple[ServiceSeen, ...], state: PhaseState) -> tuple[ServiceSeen, ...]:
        """The services with what is to be said of their devices; see gpu_phase.ports.Placement."""
        try:
            if state.phase is Phase.STARTING_SERVICES:
                return self._starting(services, state.phase_since)
            return self._watching(services)
        except SQLAlchemyError as error:
            _log.warning("cannot look at the placement of the services: %s", type(error).__name__)
            return services

    # --- starting_services -------------------------------------------------------------------------------------

    def _starting(self, services: tuple[ServiceSeen, ...], since: datetime) -> tuple[ServiceSeen, ...]:
        gone = tuple(self._until_gone(service) for service in services)
        warm = tuple(self._warmed(service, since) if service.healthy else service for service in gone)
        up = [service.name for service in warm if service.healthy]
        judged = self._judge(up, warmed=up)
        return tuple(
            self._act(service, judged[service.name], since) if service.name in judged else service for service in warm
        )

    def _until_gone(self, service: ServiceSeen) -> ServiceSeen:
        """A process that was told to stop may answer for a while: it is not taken for the new one."""
        if service.name not in self._going:
            return service
        if not service.healthy:
            self._going.discard(service.name)
            return service
        self._restart(service.name)
        return replace(service, healthy=False, detail="is restarted: it still stops")

    def _restart(self, name: str) -> None:
        self._services.stop({name})
        left = {seen.name for seen in self._services.inspect() if seen.condition is not Condition.STOPPED}
        if name in left:
            self._going.add(name)
        else:
            self._going.discard(name)

    def _warmed(self, service: ServiceSeen, since: datetime) -> ServiceSeen:
        """A service that answers before its model is loaded counts as healthy after one small request."""
        settings = self._settings.services.get(service.name)
        if settings is None or settings.warm_up == "none":
            return service
        turn = f"{since.isoformat()} {self._store.restarts(service.name, since)}"
        waits_for = self._warm_ups.waits_for(settings, turn)
        return service if waits_for is None else replace(service, healthy=False, detail=waits_for)

    def _act(self, service: ServiceSeen, judgement: Judgement, since: datetime) -> ServiceSeen:
        action = self._settings.gpu_placement_action
        restarts = self._store.restarts(service.name, since)
        if judgement.verdict is not Verdict.WRONG:
            return replace(service, placement=judgement.blame or _cured(judgement, restarts))
        if action in {"restart", "abort"} and restarts < self._settings.gpu_placement_max_restarts:
            self._store.count_restart(service.name, since)
            self._restart(service.name)
            _log.warning("%s: it is restarted", judgement.blame)
            return replace(service, healthy=False, detail=f"is restarted: it ran on {judgement.device}")
        words = judgement.blame + _tried(restarts)
        return replace(service, placement=words, barred=action == "abort")

    # --- audio -------------------------------------------------------------------------------------------------

    def _watching(self, services: tuple[ServiceSeen, ...]) -> tuple[ServiceSeen, ...]:
        running = [service.name for service in services if service.condition is Condition.RUNNING]
        judged = self._judge(running, warmed=())
        return tuple(
            replace(service, placement=judged[service.name].blame) if service.name in judged else service
            for service in services
        )

    # --- both --------------------------------------------------------------------------------------------------

    def _judge(self, names: Collection[str], warmed: Collection[str]) -> dict[str, Judgement]:
        """The verdicts on these services, which are kept. Where nothing is expected, nothing is asked."""
        if self._settings.gpu_placement_action == "off":
            return {}
        wanted = [name for name in names if self._expected[name].devices]
        seen = self._look_at(wanted, warmed) if wanted else {}
        judged = {name: judge(name, self._expected[name], seen[name]) for name in wanted}
        for judgement in judged.values():
            self._store.record(judgement)
        return judged

    def _observe(self, names: Collection[str], warmed: Collection[str]) -> Mapping[str, Observation]:
        settings = self._settings.services
        served = [name for name in warmed if settings[name].warm_up != "none"]
        return observe(self._settings, names, self._sources, served)


def _tried(restarts: int) -> str:
    if not restarts:
        return ""
    return f" ({restarts} restart tried)" if restarts == 1 else f" ({restarts} restarts tried)"


def _cured(judgement: Judgement, restarts: int) -> str:
    if not restarts or judgement.verdict is not Verdict.OK:
        return ""
    times = "1 restart" if restarts == 1 else f"{restarts} restarts"
    return f"{judgement.service} came up on the wrong device, and runs on {judgement.device} after {times}"
