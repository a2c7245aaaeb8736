"""What a tick needs of the world. Each part answers with values of outcomes and model, and never raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime, timedelta

    from voxint.gpu_phase.model import LlmSeen, PhaseState, ServiceSeen
    from voxint.gpu_phase.outcomes import AcquireOutcome, ReleaseOutcome, RenewOutcome, StatusOutcome


class Broker(Protocol):
    """The lease broker, through its client. `now` is the tick's moment: answers' times are turned to that clock."""

    def acquire(self, now: datetime, ttl: timedelta) -> AcquireOutcome:
        """Ask for a new lease."""

    def renew(self, lease_id: str, now: datetime, ttl: timedelta) -> RenewOutcome:
        """Ask for more time on the lease."""

    def release(self, lease_id: str) -> ReleaseOutcome:
        """Give the lease back."""

    def status(self, now: datetime) -> StatusOutcome:
        """Ask who holds the GPU."""


class Services(Protocol):
    """The model services together. Each call looks at all of them at the same time and is bounded in time."""

    def inspect(self) -> tuple[ServiceSeen, ...]:
        """The condition of each, as the engine that runs them says it."""

    def start(self, only: Collection[str] | None = None) -> dict[str, str]:
        """Start what does not run, or only these. Gives, by service, why a start failed; empty when all went well."""

    def health(self) -> tuple[ServiceSeen, ...]:
        """The condition of each, and whether it really answers."""

    def stop(self, only: Collection[str] | None = None) -> None:
        """Begin, or go on with, stopping every one, or only these. What came of it is for `inspect` to say."""


class Placement(Protocol):
    """Which device the model services that are up really work on."""

    def look(self, services: tuple[ServiceSeen, ...], state: PhaseState) -> tuple[ServiceSeen, ...]:
        """The services with what is to be said of their devices. In starting_services it may stop one, to be restarted."""


class LanguageModel(Protocol):
    """The configured language-model endpoints."""

    def probe(self, since: datetime) -> LlmSeen:
        """Ask all of them. `since` names this stay in llm: a first answer in it costs more than the later ones."""
