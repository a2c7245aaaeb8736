"""Runs the contract against any broker, one that somebody wrote included, and tells row by row what it did.

It really stops and starts the other service. Where the other service's address is known, it also sees whether a grant
came before the service was gone, and the end of a release before it was back.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from voxint_broker import clock
from voxint_broker.asking import AskError, Said, ask

if TYPE_CHECKING:
    from collections.abc import Callable

CALL_SECONDS = 10.0
"""What Voxint waits for one answer."""

HOLDER = "voxint"
_OTHER = "voxint-broker-check"
_UNKNOWN_ID = "no-such-lease"
_TTL = 600
_POLL_SECONDS = 0.1
_LONGEST_ID = 1024


class Verdict(StrEnum):
    """What a row says of the broker."""

    OK = "ok"
    FAILED = "FAIL"
    WARNING = "warn"
    SKIPPED = "skip"


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that was looked at."""

    name: str
    call: str
    expected: str
    got: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Target:
    """The broker's three addresses, its token, and the other service's address where it is known."""

    acquire_url: str
    release_url: str
    status_url: str
    token: str | None = None
    service_url: str | None = None
    limit_seconds: float = 300.0
    """How long stopping and starting the other service may take."""
    short_ttl: float = 2
    """ttl_seconds of the lease that is left to expire."""
    left_alone_seconds: float = 0.0
    """How long to wait for a request to be given up that nobody repeats; 0: that row is skipped."""


class EndedError(Exception):
    """What follows cannot be looked at any more."""


@dataclass
class Checker:
    """One run of the check. `rows` grows; `said` is called with each."""

    target: Target
    said: Callable[[Row], None]
    rows: list[Row] = field(default_factory=list)
    _lease: str | None = None
    _asked: bool = False
    """Whether a lease was asked for: before that, one of this holder's is Voxint's own."""
    _slowest: float = 0.0

    def run(self) -> list[Row]:
        """Look at everything, and leave the broker without a lease of ours."""
        try:
            self._at_rest()
            self._take()
            self._while_held()
            self._give_back()
            self._afterwards()
            self._expired()
            self._left_alone()
        except EndedError as error:
            self._row("the rest", "", "", str(error), Verdict.SKIPPED)
        finally:
            self._clean_up()
        late = self._slowest >= CALL_SECONDS
        self._row(
            "answers in time",
            "every call",
            f"within {CALL_SECONDS:g} s",
            f"the slowest took {self._slowest:.2f} s",
            Verdict.FAILED if late else Verdict.OK,
        )
        return self.rows

    # --- the parts ---------------------------------------------------------------------------------------------

    def _at_rest(self) -> None:
        said = self._status()
        fields = _object(said)
        fine = said is not None and said.status == 200 and fields.get("state") == "free"
        self._row("status at rest", "GET status", '200, state "free"', _shown(said), _verdict(fine))
        if fields.get("state") == "held":
            raise EndedError("somebody holds the GPU: run the check when it is free")
        if self.target.token is not None:
            bare = self._call("GET", self.target.status_url, token=None)
            fine = bare is not None and bare.status in {401, 403}
            self._row("token", "GET status without the token", "401", _shown(bare), _verdict(fine))
        self._service("service at rest", answers=True, else_=Verdict.WARNING)

    def _take(self) -> None:
        said = self._acquire(None)
        fine = said is not None and said.status in {200, 202}
        self._row("acquire", "POST acquire, lease_id null", "200 or 202", _shown(said), _verdict(fine))
        if not fine:
            raise EndedError("the GPU was not to be had")
        said = self._repeat(lambda: self._acquire(None), said)
        problem = _no_grant(said)
        lease = _object(said).get("lease_id")
        self._row(
            "granted",
            "POST acquire, until it is not pending",
            "200 with a usable lease_id, and expires_at",
            problem or _shown(said),
            _verdict(problem is None),
        )
        if problem is not None or not isinstance(lease, str):
            raise EndedError("without a lease there is nothing more to look at")
        self._lease = lease
        self._service("service while held", answers=False, else_=Verdict.FAILED)

    def _while_held(self) -> None:
        lease = self._lease
        said = self._status()
        fields = _object(said)
        fine = (fields.get("state"), fields.get("holder"), fields.get("lease_id")) == ("held", HOLDER, lease)
        self._row("status while held", "GET status", "held by voxint, the same id", _shown(said), _verdict(fine))

        said = self._acquire(None)
        same = _object(said).get("lease_id") == lease
        refused = said is not None and said.status == 409
        self._row(
            "the same request again",
            "POST acquire, lease_id null, same holder",
            "200, the same id: its answer may have been lost",
            _shown(said),
            Verdict.OK if same else Verdict.WARNING if refused else Verdict.FAILED,
        )
        said = self._acquire(None, holder=_OTHER)
        fine = said is not None and said.status == 409
        self._row("another holder", "POST acquire, another holder", "409", _shown(said), _verdict(fine))

        said = self._acquire(lease)
        problem = _no_grant(said)
        renewed = _object(said).get("lease_id")
        if problem is None and isinstance(renewed, str) and renewed != lease:
            problem, self._lease = f"another id: {renewed}", renewed
        self._row(
            "renewal",
            "POST acquire, our lease_id",
            "200, the same id",
            problem or _shown(said),
            _verdict(problem is None),
        )
        said = self._acquire(_UNKNOWN_ID)
        fine = said is not None and said.status in {404, 409}
        self._row("renewal of an unknown id", "POST acquire, an unknown id", "404", _shown(said), _verdict(fine))

        said = self._release(_UNKNOWN_ID)
        fine = said is not None and said.status == 404
        self._row("release of an unknown id", "POST release, an unknown id", "404", _shown(said), _verdict(fine))
        said = self._status()
        fields = _object(said)
        fine = fields.get("state") == "held" and fields.get("lease_id") in {self._lease, None}
        self._row("still held after that", "GET status", "held, the same id", _shown(said), _verdict(fine))

    def _give_back(self) -> None:
        lease = self._lease or ""
        said = self._release(lease)
        fine = said is not None and said.status in {200, 202}
        self._row("release", "POST release, our lease_id", "200 or 202", _shown(said), _verdict(fine))
        said = self._repeat(lambda: self._release(lease), said)
        fine = said is not None and said.status in {200, 404}
        self._row("released", "POST release, until it is not pending", "200", _shown(said), _verdict(fine))
        if not fine:
            raise EndedError("the GPU could not be given back: see to the broker and the other service")
        self._lease = None
        self._service("service after the release", answers=True, else_=Verdict.FAILED)

    def _afterwards(self) -> None:
        said = self._status()
        fields = _object(said)
        fine = fields.get("state") == "free" and fields.get("lease_id") is None
        self._row("status after the release", "GET status", "free, no id", _shown(said), _verdict(fine))
        said = self._release(_UNKNOWN_ID)
        fine = said is not None and said.status == 404
        self._row("release when free", "POST release, an unknown id", "404", _shown(said), _verdict(fine))
        said = self._acquire(_UNKNOWN_ID)
        fine = said is not None and said.status in {404, 409}
        self._row("renewal when free", "POST acquire, an unknown id", "404", _shown(said), _verdict(fine))

    def _expired(self) -> None:
        name = "renewal of an expired lease"
        call = f"POST acquire, ttl_seconds {self.target.short_ttl:g}, and a renewal after its end"
        said = self._repeat(lambda: self._acquire(None, ttl=self.target.short_ttl), None)
        lease = _object(said).get("lease_id")
        if not isinstance(lease, str):
            self._row(name, call, "404", _shown(said), Verdict.FAILED)
            raise EndedError("a second lease was not to be had")
        self._lease = lease
        left = _seconds_left(_object(said).get("expires_at"))
        if left is None or left > 5 * self.target.short_ttl:
            self._row(name, call, "404", "the lease does not end so soon", Verdict.SKIPPED)
            self._return(lease)
            return
        _pause(max(left, 0) + self.target.short_ttl / 2)
        said = self._acquire(lease, ttl=self.target.short_ttl)
        fine = said is not None and said.status in {404, 409}
        self._row(name, call, "404", _shown(said), _verdict(fine))
        if fine:
            self._lease = None
            self._service("service after an expiry", answers=True, else_=Verdict.WARNING, patient=True)
        else:
            self._return(lease)

    def _left_alone(self) -> None:
        name = "a request that is left alone"
        call = "POST acquire, and not again"
        if self.target.left_alone_seconds <= 0:
            self._row(
                name, call, "the other service comes back", "not asked for: --left-alone SECONDS", Verdict.SKIPPED
            )
            return
        self._repeat(self._status_code_until_free, None)
        self._acquire(None)
        deadline = clock.monotonic() + self.target.left_alone_seconds
        back = False
        while not back and clock.monotonic() < deadline:
            _pause(0.5)
            free = _object(self._status()).get("state") == "free"
            back = free and self._answers() is not False
        self._row(
            name,
            call,
            f"the other service is back within {self.target.left_alone_seconds:g} s",
            "back" if back else "still away",
            Verdict.OK if back else Verdict.WARNING,
        )

    def _status_code_until_free(self) -> Said | None:
        said = self._status()
        free = _object(said).get("state") == "free"
        return Said(200 if free else 202, b"")

    # --- calls -------------------------------------------------------------------------------------------------

    def _acquire(self, lease_id: str | None, *, holder: str = HOLDER, ttl: float = _TTL) -> Said | None:
        self._asked = True
        body = {"holder": holder, "ttl_seconds": ttl, "lease_id": lease_id}
        return self._call("POST", self.target.acquire_url, body, token=self.target.token)

    def _release(self, lease_id: str) -> Said | None:
        return self._call("POST", self.target.release_url, {"lease_id": lease_id}, token=self.target.token)

    def _status(self) -> Said | None:
        return self._call("GET", self.target.status_url, token=self.target.token)

    def _call(self, method: str, url: str, body: object = None, *, token: str | None) -> Said | None:
        begun = clock.monotonic()
        try:
            return ask(url, CALL_SECONDS, method=method, body=None if body is None else json.dumps(body), key=token)
        except AskError:
            return None
        finally:
            self._slowest = max(self._slowest, clock.monotonic() - begun)

    def _repeat(self, call: Callable[[], Said | None], said: Said | None) -> Said | None:
        deadline = clock.monotonic() + self.target.limit_seconds
        while said is None or said.status == 202:
            if clock.monotonic() > deadline:
                return said
            if said is not None:
                _pause(_POLL_SECONDS)
            said = call()
            if said is None:
                return None
        return said

    def _return(self, lease: str) -> None:
        self._repeat(lambda: self._release(lease), None)
        self._lease = None

    def _clean_up(self) -> None:
        if not self._asked:
            return
        held = _object(self._status())
        lease = self._lease or (held.get("lease_id") if held.get("holder") == HOLDER else None)
        if isinstance(lease, str):
            self._return(lease)

    # --- the other service -------------------------------------------------------------------------------------

    def _answers(self) -> bool | None:
        if self.target.service_url is None:
            return None
        try:
            return 200 <= ask(self.target.service_url, CALL_SECONDS).status < 300
        except AskError:
            return False

    def _service(self, name: str, *, answers: bool, else_: Verdict, patient: bool = False) -> None:
        expected = "it answers" if answers else "it does not answer"
        call = "GET the other service"
        found = self._answers()
        if found is None:
            self._row(name, call, expected, "its address is not known: --service-url", Verdict.SKIPPED)
            return
        deadline = clock.monotonic() + (self.target.limit_seconds if patient else 0)
        while found is not answers and clock.monotonic() < deadline:
            _pause(_POLL_SECONDS)
            found = self._answers()
        got = "it answers" if found else "it does not answer"
        self._row(name, call, expected, got, Verdict.OK if found is answers else else_)

    def _row(self, name: str, call: str, expected: str, got: str, verdict: Verdict) -> None:
        row = Row(name, call, expected, got, verdict)
        self.rows.append(row)
        self.said(row)


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def _verdict(fine: bool) -> Verdict:  # noqa: FBT001 - one argument, and its name says all
    return Verdict.OK if fine else Verdict.FAILED


def _object(said: Said | None) -> dict[str, Any]:
    value = said.json() if said is not None else None
    return value if isinstance(value, dict) else {}


def _shown(said: Said | None) -> str:
    if said is None:
        return "no answer"
    text = " ".join(said.body[:160].decode("utf-8", "replace").split())
    return f"{said.status} {text}".strip()


def _no_grant(said: Said | None) -> str | None:
    """Why this is no grant; None when it is one."""
    if said is None or said.status != 200:
        return f"{_shown(said)}, not granted"
    fields = _object(said)
    lease = fields.get("lease_id")
    if not isinstance(lease, str) or not lease or len(lease) > _LONGEST_ID or not lease.isprintable():
        return f"{_shown(said)}: the lease_id is unusable"
    expires = fields.get("expires_at")
    if expires is not None and _seconds_left(expires) is None:
        return f"{_shown(said)}: expires_at is no ISO 8601 time"
    return None


def _seconds_left(expires: object) -> float | None:
    if not isinstance(expires, str):
        return None
    try:
        moment = datetime.fromisoformat(expires.upper())
    except ValueError:
        return None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return (moment - clock.now()).total_seconds()
