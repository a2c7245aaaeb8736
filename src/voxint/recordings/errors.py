"""How work on a recording can end without a result. The runner turns each into what becomes of the claim."""

from __future__ import annotations

from datetime import timedelta

SOON = timedelta(seconds=5)


class NotNow(Exception):  # noqa: N818 - it is no error: what is needed is not there at the moment
    """Back to the queue, with no attempt used: a service is off or loading, or busy with another recording.

    Args:
        reason: what is missing, for people.
        retry_in: how long to wait before the next try.
    """

    def __init__(self, reason: str, retry_in: timedelta = SOON) -> None:
        super().__init__(reason)
        self.retry_in = retry_in


class StageFailed(Exception):  # noqa: N818 - named after what it does to the stage
    """This recording cannot pass the stage, however often it is tried; the message says why."""


class AttemptFailed(Exception):  # noqa: N818 - named after what it does to the attempt
    """This attempt failed for a reason that may pass, and that is no fault of ours; the message says which."""


class ClaimLost(Exception):  # noqa: N818 - the end of a claim, and often on purpose
    """The claim was taken back while the work ran: stop, and write nothing."""


class NotAddedError(ValueError):
    """A recording was not added; the message says what is wrong with it, and nothing was queued."""
