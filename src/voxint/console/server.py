"""Serves the console with uvicorn."""

from __future__ import annotations

import logging
from ipaddress import ip_address
from threading import Event, Thread
from typing import TYPE_CHECKING

import uvicorn
from sqlalchemy.exc import SQLAlchemyError

from voxint.console.app import make_console
from voxint.console.uploads import Intake
from voxint.db.trouble import place, words
from voxint.logs import set_up
from voxint.settings import SettingsError
from voxint.wiring import make

if TYPE_CHECKING:
    from fastapi import FastAPI

    from voxint.settings import Settings
    from voxint.wiring import Parts

_STOP_SECONDS = 5
_AGAIN_SECONDS = 3.0

log = logging.getLogger(__name__)


def run(settings: Settings) -> int:
    """Serve until told to stop; gives the exit status.

    Raises:
        SettingsError: CONSOLE_BIND is no address and port, or CONSOLE_PASSWORD is missing.
    """
    host, port = bind_address(settings.console_bind)
    set_up(json=settings.log_json)
    parts = make(settings)
    begin(parts, host)
    server = uvicorn.Server(config_of(make_console(parts, port), settings, host, port))
    server.run()
    return 0 if server.started else 1


def config_of(app: FastAPI, settings: Settings, host: str, port: int) -> uvicorn.Config:
    """How the console is served: only the proxies of TRUSTED_PROXIES are believed when they say who asks, and how."""
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_graceful_shutdown=_STOP_SECONDS,
    )


def begin(parts: Parts, host: str) -> None:
    """What is done once before anything is served; later, where the database is away: the pages then say that it is.

    Raises:
        SettingsError: there is no password where one is needed, or it can be none.
    """
    try:
        take_password(parts, host)
        Intake(parts.settings.media_root, parts.settings.upload_max_bytes).sweep(parts.run_store)
    except SQLAlchemyError as error:
        log.warning("%s; trying again", words(error, place(parts.settings)))
        Thread(target=_begin_later, args=(parts, host), name="begin", daemon=True).start()


def _begin_later(parts: Parts, host: str) -> None:
    pause = Event()
    while True:
        pause.wait(_AGAIN_SECONDS)
        try:
            take_password(parts, host)
        except SQLAlchemyError:
            continue
        except SettingsError as error:
            log.error("%s: nobody can sign in", error)  # noqa: TRY400 - an expected error has no trace
        return


def take_password(parts: Parts, host: str) -> None:
    """Take CONSOLE_PASSWORD in. Without any password only those who can run commands here can sign in, by a link.

    Raises:
        SettingsError: it cannot be a password; or there is none, and others than this machine reach the console.
    """
    given = parts.settings.console_password
    try:
        parts.access.take_setting(given.get_secret_value() if given else None)
        missing = not is_loopback(host) and not parts.access.has_password()
    except ValueError as error:
        raise SettingsError([f"CONSOLE_PASSWORD: {error}"]) from None
    if missing:
        raise SettingsError(
            ["CONSOLE_PASSWORD: is needed where the console listens on more than this machine (CONSOLE_BIND)"]
        )


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own, out of others' reach."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bind_address(text: str) -> tuple[str, int]:
    """CONSOLE_BIND as host and port.

    Raises:
        SettingsError: it is no such pair.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise SettingsError([f"CONSOLE_BIND: {text!r} must be an address and a port, as 127.0.0.1:8080"])
    return host, int(port)
