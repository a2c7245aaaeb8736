"""What a model service's failure means for a stage: wait, fail, or count an attempt."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from voxint.llm.client import LlmBusyError
from voxint.recordings.errors import AttemptFailed, ClaimLost, NotNow, StageFailed
from voxint.services.exchange import AbandonedError, DroppedError, ExchangeError, NotListeningError, TooSlowError
from voxint.services.model_call import ServiceBusyError, ServiceError, ServiceRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from voxint.recordings.stages.context import StageContext
    from voxint.settings import ServiceSettings

LONG_SECONDS = 3600.0


@contextmanager
def calls(context: StageContext, name: str) -> Iterator[None]:
    """Turns the failures of calls to `name` into the ways in which a claim ends.

    Raises:
        NotNow: nobody listens, or it is loading or busy.
        StageFailed: it looked at the recording and refused it.
        ClaimLost: the claim was taken back meanwhile.
        AttemptFailed: anything else.
    """
    try:
        yield
    except AbandonedError:
        raise ClaimLost from None
    except NotListeningError as error:
        raise NotNow(f"{name} does not answer: {error}") from None
    except (ServiceBusyError, LlmBusyError) as error:
        raise NotNow(str(error), error.retry_in) from None
    except ServiceRefusedError as error:
        raise StageFailed(str(error)) from None
    except (DroppedError, TooSlowError) as error:
        raise AttemptFailed(f"{name}: {error}{_length_note(context)}") from None
    except ExchangeError as error:
        raise AttemptFailed(f"{name}: {error}") from None
    except ServiceError as error:
        raise AttemptFailed(str(error)) from None


def service(context: StageContext, name: str) -> ServiceSettings:
    """The settings of a model service.

    Raises:
        StageFailed: there is none of that name.
    """
    found = context.settings.services.get(name)
    if found is None:
        raise StageFailed(f"no service {name} is set up: put it into GPU_PHASE_SERVICES")
    return found


def limit(context: StageContext) -> timedelta:
    """The limit on one call of a model service."""
    return timedelta(seconds=context.settings.service_timeout_seconds)


def _length_note(context: StageContext) -> str:
    seconds = context.run.duration_seconds
    if seconds is None or seconds < LONG_SECONDS:
        return ""
    return f"; the recording is {seconds / 3600:.1f} hours long, which may be more than the service can hold"
