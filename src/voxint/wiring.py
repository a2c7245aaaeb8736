"""The composition root: settings in, parts out. Each part is made when it is first asked for."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from voxint.gpu_phase.model import Lane
from voxint.gpu_phase.queue import StagePlan

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from voxint.access.record import Record
    from voxint.access.store import Access
    from voxint.gpu_phase.gate import Claim, Gate
    from voxint.gpu_phase.ports import Broker, LanguageModel, Placement, Services
    from voxint.gpu_phase.store import PhaseStore
    from voxint.gpu_phase.tick import Machine
    from voxint.recordings.jobs.store import Jobs
    from voxint.recordings.lifecycle import Lifecycle
    from voxint.recordings.roster import Roster
    from voxint.recordings.runs import RunStore
    from voxint.recordings.upkeep import Upkeep
    from voxint.recordings.versions import Transcripts
    from voxint.services.placement.observe import Sources
    from voxint.services.placement.store import PlacementStore
    from voxint.settings import Settings
    from voxint.work.publish import Publisher
    from voxint.work.runner import Heart

STAGE_SERVICES = {
    "transcribe": frozenset({"whisper"}),
    "diarize_embed": frozenset({"pyannote", "titanet"}),
}
"""Which model services a stage calls."""
CAPACITY = {"transcribe": 1, "diarize_embed": 1}
"""The model servers do one inference at a time: more at once would only wait in their queues."""


class Parts:
    """Everything a process of Voxint may need, from one set of settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def engine(self) -> Engine:
        """The database."""
        from sqlalchemy.exc import ArgumentError  # noqa: PLC0415 - a process pays for the parts that it uses

        from voxint.db.engine import make_engine  # noqa: PLC0415
        from voxint.settings import SettingsError  # noqa: PLC0415

        try:
            return make_engine(self.settings.database_url.get_secret_value())
        except (ArgumentError, ValueError):  # their words have the password in them
            raise SettingsError(["DATABASE_URL: is no address as postgresql://user@host:5432/name"]) from None

    @cached_property
    def stages(self) -> StagePlan:
        """The kinds of work."""
        from voxint.recordings.stages.order import STAGE_ORDER  # noqa: PLC0415

        order = tuple((name, Lane(lane)) for name, lane in STAGE_ORDER)
        return StagePlan(order, STAGE_SERVICES, self.settings.policy.ahead)

    @cached_property
    def phase_store(self) -> PhaseStore:
        """The phase in the database."""
        from voxint.gpu_phase.store import PhaseStore  # noqa: PLC0415

        return PhaseStore(self.engine, self.stages, grace=self._grace, attempts=self.settings.work_attempts)

    @cached_property
    def gate(self) -> Gate:
        """The gate in front of the work."""
        from voxint.gpu_phase.gate import Gate  # noqa: PLC0415

        return Gate(
            self.engine,
            self.settings.policy,
            self.stages,
            worker=f"{socket.gethostname()}:{os.getpid()}",
            grace=self._grace,
            attempts=self.settings.work_attempts,
            capacity=CAPACITY,
        )

    @cached_property
    def run_store(self) -> RunStore:
        """The recordings."""
        from voxint.recordings.address import LOOK_TOTAL, rules_of  # noqa: PLC0415
        from voxint.recordings.run import SpeakerRange  # noqa: PLC0415
        from voxint.recordings.runs import Defaults, RunStore  # noqa: PLC0415
        from voxint.recordings.titles import language_code  # noqa: PLC0415

        settings = self.settings
        defaults = Defaults(language_code(settings.run_language), SpeakerRange.parse(settings.run_speakers))
        rules = rules_of(settings, total=LOOK_TOTAL)
        return RunStore(self.engine, settings.media_root, rules, defaults=defaults)

    @cached_property
    def transcripts(self) -> Transcripts:
        """The frozen transcripts, and their exports."""
        from voxint.recordings.versions import Transcripts  # noqa: PLC0415

        return Transcripts(self.engine)

    @cached_property
    def roster(self) -> Roster:
        """The speakers known across recordings."""
        from voxint.recordings.roster import Roster  # noqa: PLC0415

        return Roster(self.engine)

    @cached_property
    def jobs(self) -> Jobs:
        """The language-model jobs beside a run."""
        from voxint.recordings.jobs.store import Jobs  # noqa: PLC0415

        return Jobs(self.engine)

    @cached_property
    def upkeep(self) -> Upkeep:
        """The watched folder, and deleting what is no longer kept."""
        from voxint.recordings.upkeep import Upkeep  # noqa: PLC0415

        return Upkeep(self.engine, self.run_store, self.settings)

    @cached_property
    def lifecycle(self) -> Lifecycle:
        """Cancels and requeues recordings."""
        from voxint.recordings.lifecycle import Lifecycle  # noqa: PLC0415

        return Lifecycle(self.engine, self.stages)

    @cached_property
    def access(self) -> Access:
        """Who may use the console."""
        from voxint.access.store import Access  # noqa: PLC0415

        return Access(self.engine, timedelta(seconds=self.settings.console_session_seconds))

    @cached_property
    def record(self) -> Record:
        """What people did in the console."""
        from voxint.access.record import Record  # noqa: PLC0415

        return Record(self.engine)

    @cached_property
    def broker(self) -> Broker:
        """The lease broker's client."""
        from voxint.lease.client import LeaseClient  # noqa: PLC0415

        return LeaseClient(self.settings)

    @cached_property
    def services(self) -> Services:
        """The control of the model services."""
        from voxint.services.control import make_services  # noqa: PLC0415

        return make_services(self.settings, os.environ)

    @cached_property
    def language_model(self) -> LanguageModel:
        """Whether the language model is ready."""
        from voxint.llm.readiness import LlmReadiness  # noqa: PLC0415

        return LlmReadiness(self.settings)

    @cached_property
    def machine(self) -> Machine:
        """What a tick works with."""
        from voxint.gpu_phase.tick import Machine  # noqa: PLC0415

        return Machine(
            self.phase_store, self.broker, self.services, self.language_model, self.settings.policy, self.placement
        )

    @cached_property
    def placement_store(self) -> PlacementStore:
        """The last verdicts on the devices of the model services."""
        from voxint.services.placement.store import PlacementStore  # noqa: PLC0415

        return PlacementStore(self.engine)

    @cached_property
    def placement(self) -> Placement:
        """Looks at the devices of the model services."""
        from voxint.services.placement.watch import PlacementWatch  # noqa: PLC0415

        return PlacementWatch(self.settings, self.placement_store, self.services, self.placement_sources)

    @cached_property
    def placement_sources(self) -> Sources:
        """Evidence of the devices besides the health answers, as far as this host has any."""
        from voxint.services.placement.observe import sources  # noqa: PLC0415
        from voxint.services.placement.pids import pids_of  # noqa: PLC0415
        from voxint.services.placement.service_log import printed_by  # noqa: PLC0415

        if self.settings.service_control == "none":
            return sources(self.settings)
        printed = printed_by(self.services, self.settings, self.placement_store.gpu_rate)
        return sources(self.settings, pids_of(self.settings), printed)

    @cached_property
    def publisher(self) -> Publisher:
        """Wakes workers up."""
        from voxint.work.publish import Publisher  # noqa: PLC0415

        return Publisher(self.settings)

    def work(self, claim: Claim, heart: Heart) -> dict[str, Any]:
        """Do a claimed stage; gives its result."""
        from voxint.recordings.stages.context import StageContext  # noqa: PLC0415
        from voxint.recordings.stages.table import STAGES  # noqa: PLC0415

        context = StageContext.load(self.engine, self.settings, claim, heart)
        return STAGES[claim.kind](context)

    def close(self) -> None:
        """Let go of the database's connections."""
        if "engine" in self.__dict__:
            self.engine.dispose()

    @property
    def _grace(self) -> timedelta:
        return timedelta(seconds=self.settings.work_heartbeat_limit_seconds)


def make(settings: Settings) -> Parts:
    """The parts for these settings."""
    return Parts(settings)
