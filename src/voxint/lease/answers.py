"""What the broker's bytes mean: status code, headers and body become an outcome. Pure; the client does the calling.

Release is judged by its code alone. For acquire, 202, 409, and on a renewal 404, mean what they mean whatever the body
is; only a 200 needs a usable lease id. An unusable 200 is neither yes nor no.
"""

from __future__ import annotations

import json
import math
import unicodedata
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from voxint.gpu_phase.outcomes import Done, Failed, Free, Granted, Held, Lost, Pending, Refused

if TYPE_CHECKING:
    from voxint.gpu_phase.outcomes import AcquireOutcome, ReleaseOutcome, RenewOutcome, StatusOutcome

LEASE_ID_LIMIT = 1_024
"""Characters of the longest lease id that is accepted."""

HOLDER_LIMIT = 200
"""Characters of a holder's name that are kept."""

EXCERPT_LIMIT = 160
"""Characters of an error's text that go into a reason."""

SAME_CLOCK = timedelta(seconds=5)
"""Clocks that differ by less count as one: a Date header has whole seconds, and the answer took a while to come."""

_WEB_PAGE = "the body is a web page"
_LATEST = datetime.max.replace(tzinfo=UTC) - timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the broker.

    `body` is None where it could not be read to its end, and `problem` then says why. `date` is its Date header.
    `secrets` are texts that must not come back in a reason, should the broker repeat them.
    """

    status: int
    body: bytes | None = b""
    problem: str | None = None
    date: str | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def hide(self, text: str) -> str:
        """The text without the secrets that stand in it."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def acquired(answer: Answer, now: datetime, ttl: timedelta) -> AcquireOutcome:
    """What an answer to a request for a new lease means."""
    match answer.status:
        case 200:
            return _granted(answer, now, ttl)
        case 202:
            return Pending()
        case 409:
            return _refused(answer, now)
        case _:
            return Failed(_unexpected(answer))


def renewed(answer: Answer, now: datetime, ttl: timedelta) -> RenewOutcome:
    """What an answer to a renewal means. Only 404 and 409 take the lease away."""
    match answer.status:
        case 200:
            return _granted(answer, now, ttl)
        case 202:
            return Failed("the broker answered 202 (pending) to a renewal")
        case 404:
            return Lost("the broker does not know it any more (404)")
        case 409:
            holder = _text(answer, _object(answer)[0].get("holder"))
            return Lost(f"the broker says that {holder} holds the GPU (409)" if holder else "the broker refused (409)")
        case _:
            return Failed(_unexpected(answer))


def released(answer: Answer) -> ReleaseOutcome:
    """What an answer to a release means: the code alone decides."""
    match answer.status:
        case 200 | 404:
            return Done()
        case 202:
            return Pending()
        case _:
            return Failed(_unexpected(answer))


def status(answer: Answer, now: datetime) -> StatusOutcome:
    """What an answer to a status question means. Anything but a plain free or held is unknown."""
    if answer.status != 200:
        return Failed(_unexpected(answer))
    body, problem = _object(answer)
    if problem:
        return Failed(f"the broker's status is unusable: {problem}")
    match body.get("state"):
        case "free":
            return Free()
        case "held":
            lease_id = body.get("lease_id")
            usable = lease_id if isinstance(lease_id, str) and _usable(lease_id) is None else None
            expires_at, _ = _expiry(body.get("expires_at"), answer, now)
            return Held(_text(answer, body.get("holder")), usable, expires_at)
        case _:
            return Failed("the broker's status is unusable: its state is neither free nor held")


def clock_difference(answer: Answer, now: datetime) -> timedelta | None:
    """How far the broker's clock is ahead of `now` (negative: behind). None where the answer has no usable Date."""
    if answer.date is None:
        return None
    try:
        there = parsedate_to_datetime(answer.date)
        if there.tzinfo is None:
            there = there.replace(tzinfo=UTC)
        return there - now
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _granted(answer: Answer, now: datetime, ttl: timedelta) -> Granted | Failed:
    body, problem = _object(answer)
    problem = problem or _usable(body.get("lease_id"))
    if problem:
        return Failed(f"the broker answered 200 without a usable lease: {problem}")
    lease_id = str(body["lease_id"])
    if body.get("expires_at") is None:
        return Granted(lease_id, None)
    expires_at, warning = _expiry(body["expires_at"], answer, now)
    if expires_at is None:
        warning = f"the broker's expires_at cannot be read; counting {ttl.total_seconds():.0f} s from now"
        return Granted(lease_id, now + ttl, warning)
    return Granted(lease_id, expires_at, warning)


def _refused(answer: Answer, now: datetime) -> Refused:
    body, _ = _object(answer)
    given = body.get("retry_after_seconds")
    wait, warning = _wait(given, now) if given is not None else (None, None)
    return Refused(_text(answer, body.get("holder")), wait, warning)


def _object(answer: Answer) -> tuple[dict[str, object], str | None]:
    """The body as a JSON object; or an empty one and what is wrong with it."""
    if answer.body is None:
        return {}, answer.problem or "the body could not be read"
    try:
        value = json.loads(answer.body.decode("utf-8"))
    except UnicodeDecodeError:
        return {}, "the body is not UTF-8 text"
    except (ValueError, RecursionError):
        return {}, _not_json(answer.body)
    if not isinstance(value, dict):
        return {}, "the body is JSON, but no object"
    return value, None


def _not_json(body: bytes) -> str:
    if not body.strip():
        return "the body is empty"
    return _WEB_PAGE if body.lstrip()[:1] == b"<" else "the body is not JSON"


def _usable(lease_id: object) -> str | None:
    """Why this cannot be a lease id; None for a good one."""
    if not isinstance(lease_id, str):
        return "lease_id is missing" if lease_id is None else "lease_id is not a string"
    if not lease_id:
        return "lease_id is empty"
    if len(lease_id) > LEASE_ID_LIMIT:
        return f"lease_id has more than {LEASE_ID_LIMIT:,} characters"
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in lease_id):
        return "lease_id has control characters"
    return None


def _expiry(value: object, answer: Answer, now: datetime) -> tuple[datetime | None, str | None]:
    """The expiry on our own clock, and a warning where the two clocks had to be compared. None: unreadable."""
    read = _moment(value)
    if read is None:
        return None, None
    ahead = clock_difference(answer, now)
    if ahead is None or abs(ahead) < SAME_CLOCK:
        return read, None
    try:
        ours = read - ahead
    except OverflowError:
        return read, None
    if ours <= now:
        return read, None  # the broker's own clock says that it is over; or the date names no moment to rely on
    seconds = abs(ahead).total_seconds()
    return ours, f"the broker's clock is {seconds:.0f} s {'ahead of' if ahead > timedelta(0) else 'behind'} this one"


def _moment(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    text = value[:-1] + "Z" if value.endswith("z") else value
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _wait(value: object, now: datetime) -> tuple[timedelta | None, str | None]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None, "the broker's retry_after_seconds is no number: ignored"
    if isinstance(value, float) and not math.isfinite(value):
        return None, "the broker's retry_after_seconds is not finite: ignored"
    if value < 0:
        return None, "the broker's retry_after_seconds is negative: ignored"
    longest = _LATEST - now
    if value >= longest.total_seconds():
        return longest, None
    return timedelta(seconds=value), None


def _text(answer: Answer, value: object) -> str | None:
    return answer.hide(value)[:HOLDER_LIMIT] if isinstance(value, str) and value.strip() else None


def _unexpected(answer: Answer) -> str:
    """A status code that the contract does not name here, in words that say what to look at."""
    code = answer.status
    if code in {401, 403}:
        text = f"the broker does not accept the token ({code})"
    elif 300 <= code < 400:
        text = f"the broker answered with a redirect ({code}), which is not followed"
    elif code in {404, 405}:
        text = f"the broker has nothing at this address ({code})"
    else:
        text = f"the broker answered {code}"
    excerpt = _excerpt(answer)
    return f"{text}: {excerpt}" if excerpt else text


def _excerpt(answer: Answer) -> str | None:
    body, problem = _object(answer)
    if problem is None:
        for name in ("error", "detail", "message", "reason"):
            said = _text(answer, body.get(name))
            if said:
                return said[:EXCERPT_LIMIT]
        return None
    if not answer.body or problem == _WEB_PAGE:
        return None
    try:
        return answer.hide(answer.body.decode("utf-8"))[:EXCERPT_LIMIT].strip() or None
    except UnicodeDecodeError:
        return None
