"""Calls the lease broker: one bounded call, one outcome, never an exception.

Ten seconds are for the whole call, from the name's look-up to the body's last byte, so it runs on a thread of its own
that is cut off when they are over. The environment's proxies do not apply, as the broker is on the host; redirects are
not followed, so that the token goes nowhere else; each call has a new connection, so that an idle close fails nothing.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx

from voxint.gpu_phase.model import HOLDER
from voxint.gpu_phase.outcomes import Failed
from voxint.gpu_phase.reasons import HANGS
from voxint.lease import answers
from voxint.lease.answers import Answer

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from voxint.gpu_phase.outcomes import AcquireOutcome, ReleaseOutcome, RenewOutcome, StatusOutcome
    from voxint.settings import Settings

CALL_SECONDS = 10.0
"""The limit of one call, all in all."""

BODY_LIMIT = 64 * 1024
"""Bytes of the longest body that is read."""


class LeaseClient:
    """The broker of the GPU lease, as the settings name it. A `gpu_phase.ports.Broker`."""

    def __init__(self, settings: Settings, *, call_seconds: float = CALL_SECONDS) -> None:
        token = settings.gpu_lease_token.get_secret_value().strip() if settings.gpu_lease_token else ""
        self._acquire_url = settings.gpu_lease_acquire_url or ""
        self._release_url = settings.gpu_lease_release_url or ""
        self._status_url = settings.gpu_lease_status_url or ""
        self._token = token
        self._call_seconds = call_seconds
        self._secrets = _secrets(token, self._acquire_url, self._release_url, self._status_url)
        self.clock_difference: timedelta | None = None
        """How far the broker's clock was ahead of ours at the last answer that could tell; for the doctor."""

    def __repr__(self) -> str:
        return f"LeaseClient({shown(self._acquire_url)!r})"

    def acquire(self, now: datetime, ttl: timedelta) -> AcquireOutcome:
        """Ask for a new lease."""
        answer = self._call("POST", self._acquire_url, now, _wish(ttl, None))
        return answers.acquired(answer, now, ttl) if isinstance(answer, Answer) else answer

    def renew(self, lease_id: str, now: datetime, ttl: timedelta) -> RenewOutcome:
        """Ask for more time on the lease."""
        answer = self._call("POST", self._acquire_url, now, _wish(ttl, lease_id))
        return answers.renewed(answer, now, ttl) if isinstance(answer, Answer) else answer

    def release(self, lease_id: str) -> ReleaseOutcome:
        """Give the lease back."""
        answer = self._call("POST", self._release_url, None, {"lease_id": lease_id})
        return answers.released(answer) if isinstance(answer, Answer) else answer

    def status(self, now: datetime) -> StatusOutcome:
        """Ask who holds the GPU."""
        answer = self._call("GET", self._status_url, now)
        return answers.status(answer, now) if isinstance(answer, Answer) else answer

    def _call(self, method: str, url: str, now: datetime | None, body: object = None) -> Answer | Failed:
        exchange = _Exchange(method, url, body, self._token, self._secrets)
        answer = exchange.run(self._call_seconds)
        if isinstance(answer, Failed):
            reason = f"cannot reach the broker at {shown(url)}: {answer.reason}"
            for secret in self._secrets:
                reason = reason.replace(secret, "***")
            return Failed(reason)
        if now is not None:
            difference = answers.clock_difference(answer, now)
            self.clock_difference = difference if difference is not None else self.clock_difference
        return answer


class _Exchange:
    """One call on a thread of its own, so that its end can be waited for with a limit."""

    def __init__(self, method: str, url: str, body: object, token: str, secrets: tuple[str, ...]) -> None:
        self._method = method
        self._url = url
        self._body = body
        self._token = token
        self._secrets = secrets
        self._over = threading.Event()
        self._given_up = False
        self._socket: socket.socket | None = None
        self._answer: Answer | Failed | None = None

    def run(self, seconds: float) -> Answer | Failed:
        deadline = time.monotonic() + seconds
        threading.Thread(target=self._thread, args=(seconds,), name="broker-call", daemon=True).start()
        done = self._over.wait(max(deadline - time.monotonic(), 0))
        answer = self._answer
        if done and answer is not None:
            return answer
        self._cut()
        # A code that had come says more than the body that did not end: a release, for one, is judged by it alone.
        timed_out = f"{HANGS} {seconds:g} s (timed out)"
        if isinstance(answer, Answer):
            return Answer(answer.status, None, timed_out, answer.date, self._secrets)
        return Failed(timed_out)

    def _thread(self, seconds: float) -> None:
        try:
            self._answer = self._talk(seconds)
        except Exception as error:  # noqa: BLE001 - whatever a library raises must become a reason, not a dead thread
            if isinstance(self._answer, Answer):
                self._answer = Answer(self._answer.status, None, reason_of(error), self._answer.date, self._secrets)
            else:
                self._answer = Failed(reason_of(error))
        self._over.set()

    def _talk(self, seconds: float) -> Answer:
        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Connection": "close",
            "User-Agent": "voxint",
        }
        # A name and password in the address are for a broker without a token of its own.
        auth = httpx.Auth() if self._token else None
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        with (
            httpx.Client(
                timeout=seconds, trust_env=False, follow_redirects=False, verify=_tls(self._url), headers=headers
            ) as client,
            client.stream(
                self._method,
                self._url,
                auth=auth if auth is not None else httpx.USE_CLIENT_DEFAULT,
                extensions={"trace": self._trace},
                **({"json": self._body} if self._body is not None else {}),  # type: ignore[arg-type]
            ) as response,
        ):
            date = response.headers.get("date")
            self._answer = Answer(response.status_code, None, "the body did not end", date, self._secrets)
            body = bytearray()
            for part in response.iter_raw():
                body += part
                if len(body) > BODY_LIMIT:
                    problem = f"the body is larger than {BODY_LIMIT // 1024} KiB"
                    self._cut()
                    return Answer(response.status_code, None, problem, date, self._secrets)
            return Answer(response.status_code, bytes(body), None, date, self._secrets)

    def _trace(self, event: str, info: dict[str, object]) -> None:
        if event in {"connection.connect_tcp.complete", "connection.start_tls.complete"}:
            stream = info.get("return_value")
            if stream is not None:
                self._socket = stream.get_extra_info("socket")  # type: ignore[attr-defined]
            if self._given_up:  # nobody waits for the lease any more that would now be asked for
                self._cut()

    def _cut(self) -> None:
        """End the connection under the thread, which then ends by itself. One that is made later ends before it is used."""
        self._given_up = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # The plain socket's own method: the TLS one would wait for its state.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def reason_of(error: BaseException) -> str:
    """Why a call brought no answer, told apart by the cause that lies under the library's error."""
    chain = _chain(error)
    tls = next((link for link in chain if isinstance(link, ssl.SSLError)), None)
    if tls is not None:
        why = getattr(tls, "verify_message", "") or getattr(tls, "reason", "") or "no handshake"
        return f"the TLS connection failed ({why})"
    for kinds, reason in _REASONS:
        if any(isinstance(link, kinds) for link in chain):
            return reason
    for link in reversed(chain):
        if isinstance(link, OSError) and link.strerror:
            return link.strerror.lower()
    return f"the call failed ({type(error).__name__})"


_REASONS: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((httpx.InvalidURL, httpx.UnsupportedProtocol), "the address cannot be used"),
    ((socket.gaierror, UnicodeError), "its host name is not known (the name does not resolve)"),
    ((ConnectionRefusedError,), "connection refused"),
    ((httpx.TimeoutException, TimeoutError), "no answer in time (timed out)"),
    (
        (httpx.RemoteProtocolError, ConnectionResetError, BrokenPipeError),
        "it closed the connection without a complete answer, or does not speak HTTP",
    ),
)


def _chain(error: BaseException | None) -> list[BaseException]:
    links: list[BaseException] = []
    while error is not None and error not in links:
        links.append(error)
        error = error.__cause__ or error.__context__
    return links


def shown(url: str) -> str:
    """An address as it may be shown: without its user, password and query."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        host = f"[{host}]" if ":" in host else host
        return urlunsplit((parts.scheme, f"{host}:{parts.port}" if parts.port else host, parts.path, "", ""))
    except ValueError:
        return "(an address that cannot be read)"


def _wish(ttl: timedelta, lease_id: str | None) -> dict[str, object]:
    return {"holder": HOLDER, "ttl_seconds": round(ttl.total_seconds()), "lease_id": lease_id}


def _tls(url: str) -> ssl.SSLContext | bool:
    """The machine's own certificates for https; reading them takes too long to do it for plain http."""
    return ssl.create_default_context() if url.lower().startswith("https:") else False


def _secrets(token: str, *urls: str) -> tuple[str, ...]:
    found = {token}
    for url in urls:
        with contextlib.suppress(ValueError):
            password = urlsplit(url).password or ""
            found |= {password, unquote(password)}
    return tuple(sorted(found - {""}, key=len, reverse=True))
