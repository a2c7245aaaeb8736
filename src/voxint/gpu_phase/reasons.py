"""The words of a failure or a note, made where the decision is made and stored with it."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from voxint.gpu_phase.model import HOLDER, LAST_ERROR_LIMIT, Condition
from voxint.gpu_phase.outcomes import Failed, Held, Lost

if TYPE_CHECKING:
    from voxint.gpu_phase.model import LlmSeen, ServiceSeen
    from voxint.gpu_phase.outcomes import Refused, StatusOutcome
    from voxint.gpu_phase.plan import Seen
    from voxint.gpu_phase.policy import Policy

NO_ANSWER = "the language model does not answer"
HANGS = "no complete answer within"
"""What a call says of a broker that is there and does not answer to the end."""
NOT_INSPECTED = "could not inspect"
NOT_ASKED = "could not ask the broker who holds the GPU"
NOT_TAKEN_BACK = "could not hand the GPU back"
NOT_HANDED_BACK = "the GPU was not handed back"
NAMES_NO_LEASE = f"the broker says that {HOLDER} holds the GPU, but names no lease"
REFUSED_NAMING_US = "the broker refused a new lease because voxint already holds one"


def clean(text: str) -> str:
    """A reason as it is stored and shown: no control or format characters, one line, 300 characters at most."""
    if not text.isprintable():  # nearly every reason is, and then there is nothing to look for
        spaced = (" " if unicodedata.category(character) in {"Cc", "Zl", "Zp"} else character for character in text)
        text = "".join(character for character in spaced if unicodedata.category(character) not in {"Cf", "Cs"})
    return " ".join(text.split())[:LAST_ERROR_LIMIT]


def refused(refusal: Refused) -> str:
    """An acquire was answered 409 on behalf of somebody else."""
    text = "the broker refused the GPU"
    if refusal.holder:
        text += f": {refusal.holder} holds it"
    if refusal.retry_after is not None:
        text += f"; it asks to wait {refusal.retry_after.total_seconds():.0f} s"
    return text


def acquire_failed(reason: str) -> str:
    """An acquire brought no usable answer."""
    return f"could not acquire the GPU: {reason}"


def acquire_limit(policy: Policy, seen: Seen) -> str:
    """The way to the GPU took longer than the operator allows."""
    seconds = policy.acquire_limit.total_seconds()
    if seen.acquire is None:
        return f"could not acquire the GPU within {seconds:.0f} s: {blind(seen) or 'the broker was not asked'}"
    return f"the broker did not free the GPU within {seconds:.0f} s"


def lease_lost(seen: Seen) -> str:
    """The GPU is no longer ours."""
    if isinstance(seen.renewal, Lost):
        return f"the lease was lost: {seen.renewal.reason}"
    if isinstance(seen.renewal, Failed):
        return f"the lease expired: it could not be renewed: {seen.renewal.reason}"
    return "the lease expired"


def renewal_failed(reason: str) -> str:
    """A renewal brought no usable answer; the lease may still be good."""
    return f"could not renew the lease: {reason}"


def service_stopped(gone: tuple[ServiceSeen, ...]) -> str:
    """A model service went away under the work."""
    return f"{_names(gone)} stopped while Voxint held the GPU"


def start_limit(policy: Policy, services: tuple[ServiceSeen, ...] | None) -> str:
    """The model services did not come up in time."""
    late = tuple(service for service in services or () if not service.healthy)
    named = _details(late) if late else "the model services"
    return f"not ready within {policy.start_limit.total_seconds():.0f} s: {named}"


def placement(services: tuple[ServiceSeen, ...] | None) -> str | None:
    """What is to be said of the devices that the services work on; None where nothing is."""
    return clean("; ".join(service.placement for service in services or () if service.placement)) or None


def wrong_device(barred: tuple[ServiceSeen, ...]) -> str:
    """Audio may not begin with these services, for the device that they work on."""
    return placement(barred) or f"{_names(barred)} came up on a device that audio may not begin with"


def stop_limit(policy: Policy, services: tuple[ServiceSeen, ...] | None) -> str:
    """The model services did not go away in time."""
    left = _left(services)
    named = _details(left) if left else "the model services"
    return f"could not confirm within {policy.stop_limit.total_seconds():.0f} s that they stopped: {named}"


def not_confirmed(policy: Policy, services: tuple[ServiceSeen, ...] | None) -> str:
    """Nothing could be released, as nobody could say whether the services are stopped."""
    named = _details(_left(services)) or "the model services"
    seconds = policy.release_limit.total_seconds()
    return f"{NOT_HANDED_BACK}: for {seconds:.0f} s nothing could say whether it is free: {named}"


def release_limit(policy: Policy) -> str:
    """The broker answered pending for longer than the operator allows."""
    return f"the broker did not bring the language model back within {policy.release_limit.total_seconds():.0f} s"


def release_failed(reason: str) -> str:
    """The broker could not take the GPU back."""
    return f"{NOT_TAKEN_BACK}: {reason}"


def status_unknown(status: StatusOutcome | None) -> str:
    """Whether a lease of ours is left cannot be found out."""
    if isinstance(status, Failed):
        return f"{NOT_ASKED}: {status.reason}"
    if isinstance(status, Held):
        return NAMES_NO_LEASE
    return NOT_ASKED


def held_by_another(holder: str | None) -> str:
    """Somebody else has the GPU."""
    return f"the broker says that {holder or 'somebody unnamed'} holds the GPU"


def in_llm(seen: Seen) -> str | None:
    """What keeps a switch or the post lane waiting in llm; None when nothing does."""
    others = seen.status.holder if isinstance(seen.status, Held) else HOLDER
    parts = (blind(seen), held_by_another(others) if others != HOLDER else None, llm_not_ready(seen.llm))
    return clean("; ".join(part for part in parts if part)) or None


def llm_not_ready(llm: LlmSeen | None) -> str | None:
    """What the post lane waits for; None when it waits for nothing."""
    if llm is None or llm.ready:
        return None
    return f"{NO_ANSWER}: {llm.detail}" if llm.detail else NO_ANSWER


def mend(reason: str | None) -> str:
    """What a person can do about a reason; empty where the reason itself says it. It follows the reason."""
    if reason is None or HANGS not in reason:
        return ""
    return (
        "; the broker hangs: restart it (`systemctl restart voxint-broker` on its host; where `voxint standalone` runs it,"
        " stop that and start it again); its log says what it did last (`journalctl -u voxint-broker`; standalone:"
        " logs/broker.log in its data folder)"
    )


def blind(seen: Seen) -> str | None:
    """Why no switch may begin: something that must be known could not be asked. None when all is known."""
    unknown = tuple(service for service in seen.services or () if service.condition is Condition.UNKNOWN)
    if unknown:
        return clean(f"{NOT_INSPECTED} {_details(unknown)}")
    if isinstance(seen.status, Failed) or (
        isinstance(seen.status, Held) and seen.status.holder == HOLDER and seen.status.lease_id is None
    ):
        return clean(status_unknown(seen.status))
    return None


def blind_in(note: str | None) -> str | None:
    """What a stored note says of `blind`, which stands first in it; None where all was known."""
    if note is None or not note.startswith((NOT_INSPECTED, NOT_ASKED, NAMES_NO_LEASE)):
        return None
    return note.partition(f"; {NO_ANSWER}")[0]


def trouble(seen: Seen) -> str | None:
    """What went wrong in a tick that goes on all the same."""
    if isinstance(seen.renewal, Failed):
        return clean(renewal_failed(seen.renewal.reason))
    return blind(seen) or placement(seen.services)


def not_started(seen: Seen) -> str | None:
    """What a start waits for."""
    if isinstance(seen.renewal, Failed):
        return clean(renewal_failed(seen.renewal.reason))
    late = tuple(service for service in seen.services or () if not service.healthy)
    return clean(f"waiting for {_details(late)}") if late else None


def not_stopped(seen: Seen) -> str | None:
    """What a stop waits for, and whether the lease could not be kept meanwhile."""
    left = _left(seen.services)
    parts = [f"waiting for {_details(left)} to stop"] if left else []
    if isinstance(seen.renewal, Failed):
        parts.append(renewal_failed(seen.renewal.reason))
    return clean("; ".join(parts)) or None


def found(services: tuple[ServiceSeen, ...] | None, lease: Held | None = None) -> str:
    """What was found running or held that nobody had started in this turn."""
    up = tuple(service for service in services or () if service.condition is Condition.RUNNING)
    parts = []
    if up:
        parts.append(f"{_names(up)} {'runs' if len(up) == 1 else 'run'} without a turn of ours: stopping")
    if lease is not None:
        parts.append("the broker still holds a lease of voxint: giving it back")
    return clean("; ".join(parts))


def _left(services: tuple[ServiceSeen, ...] | None) -> tuple[ServiceSeen, ...]:
    return tuple(service for service in services or () if service.condition is not Condition.STOPPED)


def _names(services: tuple[ServiceSeen, ...]) -> str:
    return ", ".join(service.name for service in services)


def _details(services: tuple[ServiceSeen, ...]) -> str:
    return ", ".join(f"{s.name} ({s.detail})" if s.detail else s.name for s in services)
