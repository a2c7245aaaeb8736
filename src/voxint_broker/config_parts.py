"""The kinds of value that configurations are made of."""

from __future__ import annotations

import signal
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr


def http_url(value: str) -> str:
    """The same, where it is an http or https address with a host, and without a name or password: none is ever sent.

    Raises:
        ValueError: it is none.
    """
    try:
        parts = urlsplit(value)
        fine = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fine = False
    if not fine:
        raise ValueError("must be an http:// or https:// address with a host")
    if "@" in parts.netloc:
        raise ValueError("must hold no name and password: they would not be sent, and stand in the log")
    return value


def _address(value: str) -> str:
    host, _, port = value.rpartition(":")
    try:
        ip_address(host.strip("[]"))
        fine = 0 <= int(port) < 65536 and (":" not in host or (host[0] == "[" and host[-1] == "]"))
    except ValueError:
        fine = False
    if not fine:
        raise ValueError(f"{value!r} is no address: write it as 127.0.0.1:9100 or [::1]:9100")
    return value


def _signal(value: str) -> str:
    if value not in {"SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2"} or not hasattr(signal, value):
        raise ValueError("must be one of SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2")
    return value


def _header_key(value: SecretStr) -> SecretStr:
    text = value.get_secret_value().strip()
    if not text or not text.isascii() or not text.isprintable():
        raise ValueError("must be printable ASCII, and not empty")
    return SecretStr(text)


ApiKey = Annotated[SecretStr, AfterValidator(_header_key)]
HttpUrl = Annotated[str, AfterValidator(http_url)]
Address = Annotated[str, AfterValidator(_address)]
Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
Argv = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]


class ConfigPart(BaseModel):
    """A table of the file. Unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


StopSignal = Annotated[str, AfterValidator(_signal)]
