"""Serves the console with uvicorn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import uvicorn

from voxint.console.app import make_console
from voxint.logs import set_up
from voxint.settings import SettingsError
from voxint.wiring import make

if TYPE_CHECKING:
    from voxint.settings import Settings

_STOP_SECONDS = 5


def run(settings: Settings) -> int:
    """Serve until told to stop; gives the exit status.

    Raises:
        SettingsError: CONSOLE_BIND is no address and port.
    """
    host, port = bind_address(settings.console_bind)
    set_up(json=settings.log_json)
    config = uvicorn.Config(
        make_console(make(settings)),
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    server = uvicorn.Server(config)
    server.run()
    return 0 if server.started else 1


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
