"""PURE: the address under which somebody on this machine opens the console, and the link that signs in there."""

from __future__ import annotations

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "::": "[::1]"}  # noqa: S104 - what it is turned into is one machine


def base_address(bind: str) -> str:
    """CONSOLE_BIND as an address for a browser here."""
    host, _, port = bind.rpartition(":")
    return f"http://{_EVERYWHERE.get(host, host)}:{port}"


def link_address(base: str, token: str) -> str:
    """The one-time link."""
    return f"{base.rstrip('/')}/sign-in?link={token}"
