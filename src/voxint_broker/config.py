"""The configuration file: every key, its default and its rule. All problems are told at once, not the first alone."""

from __future__ import annotations

import difflib
import os
import signal
import tomllib
from ipaddress import ip_address
from pathlib import Path  # noqa: TC003 - pydantic reads the annotations when the program runs
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic_core import ErrorDetails


class ConfigError(ValueError):
    """A configuration that cannot be used: one clear line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def _http_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        fine = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fine = False
    if not fine:
        raise ValueError("must be an http:// or https:// address with a host")
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


HttpUrl = Annotated[str, AfterValidator(_http_url)]
Address = Annotated[str, AfterValidator(_address)]
Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
Argv = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Ready(_Part):
    """When a service counts as back: it really answers, an open port is not enough."""

    url: HttpUrl = Field(description="The address that is asked until it answers.")
    status: tuple[Annotated[int, Field(ge=100, le=599)], ...] = Field((200,), description="Codes that mean ready.")
    body: str | None = Field(None, description="A JSON text to POST, as a one-token completion; empty: a GET.")
    contains: str = Field("", description="A text that the answer must hold.")
    limit_seconds: Seconds = Field(300, description="The longest wait for it.")
    answer_seconds: Seconds = Field(10, description="The longest wait for one answer.")


class Service(_Part):
    """What every kind of service has."""

    name: Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9._-]+$")]
    ready_url: HttpUrl | None = Field(None, description="Short for ready.url with the defaults of [service.ready].")
    ready: Ready | None = Field(None, description="When it counts as back.")

    @model_validator(mode="after")
    def _one_ready(self) -> Self:
        if self.ready is not None and self.ready_url is not None:
            raise ValueError("ready_url and [service.ready] say the same: keep one of them")
        return self

    @property
    def readiness(self) -> Ready | None:
        """What is asked, from whichever of the two keys is set."""
        return Ready.model_validate({"url": self.ready_url}) if self.ready_url is not None else self.ready


class ChildService(Service):
    """A process that the broker itself starts."""

    kind: Literal["child"]
    command: Argv = Field(description="The program and its arguments; no shell reads them.")
    environment: dict[str, str] = Field(default_factory=dict, description="Variables beside the broker's own.")
    folder: Path | None = Field(None, description="Its working folder.")
    log: Path | None = Field(None, description="The file that its output is added to; none: it is thrown away.")
    stop_signal: Annotated[str, AfterValidator(_signal)] = Field(
        "SIGTERM", description="The signal that asks it to end."
    )
    stop_seconds: Seconds = Field(20, description="How long it has for that.")
    kill_seconds: Seconds = Field(5, description="How long it may be there after SIGKILL.")


AnyService = ChildService


class Memory(_Part):
    """The proof that the GPU is free. Two readings in a row must say so, and a failed reading says nothing."""

    readings: Annotated[int, Field(ge=1, le=10)] = Field(2, description="Readings in a row that must say free.")
    interval_seconds: Annotated[float, Field(ge=0.001, le=60)] = Field(0.01, description="Time between two of them.")
    limit_seconds: Seconds = Field(60, description="The longest wait for free memory.")


class NoMemory(Memory):
    """No proof beyond the processes being gone. Only for a service whose memory goes with its processes."""

    kind: Literal["none"]


class LockMemory(Memory):
    """A lock file stands for the GPU: whoever has a model loaded keeps a lock on it (flock)."""

    kind: Literal["lock"]
    path: Path = Field(description="The lock file.")


AnyMemory = Annotated[NoMemory | LockMemory, Field(discriminator="kind")]


class LeaseRules(_Part):
    """How long leases last, and how long a request is remembered."""

    max_ttl_seconds: Annotated[float, Field(ge=1, le=31_536_000)] = Field(86_400, description="The longest lease.")
    give_up_seconds: Annotated[float, Field(ge=1, le=86_400)] = Field(
        180, description="A request that nobody repeats for so long is given up, and the services come back."
    )
    look_seconds: Annotated[float, Field(ge=0.05, le=3600)] = Field(
        3, description="How often it is looked again: for free memory after an expiry, for services that come back."
    )
    retry_seconds: Annotated[float, Field(ge=0.05, le=3600)] = Field(
        30, description="How often a failed start is tried again without being asked."
    )


class Config(_Part):
    """The whole file."""

    listen: Annotated[tuple[Address, ...], Field(min_length=1)] = Field(
        ("127.0.0.1:9100",), description="Addresses to answer at. Any beyond loopback needs a token."
    )
    state_dir: Path = Field(description="The folder of the journal. One broker to a folder.")
    token: SecretStr | None = Field(None, description="The bearer token that calls must carry.")
    token_file: Path | None = Field(None, description="A file that holds the token.")
    token_env: str | None = Field(None, description="An environment variable that holds the token.")
    allowed_hosts: tuple[str, ...] = Field(
        (), description="Further names by which the broker may be called (Host header)."
    )
    stop_services_on_exit: bool = Field(
        False,  # noqa: FBT003
        description="Stop child processes when the broker is stopped. Else they go on and are found again.",
    )
    lease: LeaseRules = Field(default_factory=lambda: LeaseRules.model_validate({}))
    memory: AnyMemory
    service: Annotated[tuple[AnyService, ...], Field(min_length=1, description="The services, in starting order.")]

    @model_validator(mode="after")
    def _together(self) -> Self:
        problems = list(self._problems())
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        names = [service.name for service in self.service]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"service: two services have the name {name!r}"
        sources = [name for name in ("token", "token_file", "token_env") if getattr(self, name) is not None]
        if len(sources) > 1:
            yield f"{' and '.join(sources)}: keep one of them"
        open_to_others = [place for place in self.listen if not ip_address(host_of(place)).is_loopback]
        if open_to_others and not sources:
            yield f"listen: {', '.join(open_to_others)} can be reached from elsewhere, so a token is needed"
        for service in self.service:
            if isinstance(service, ChildService) and service.readiness is None:
                yield f"service {service.name}: ready_url is missing: a real answer says when it is back"


def host_of(address: str) -> str:
    """The host of host:port, without brackets."""
    return address.rpartition(":")[0].strip("[]")


def load(path: Path) -> Config:
    """Read and check a configuration file. Relative paths in it start at its folder.

    Raises:
        ConfigError: a line for each thing that is wrong.
    """
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise ConfigError([f"cannot read {path}: {error.strerror}"]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: is not TOML: {error}"]) from error
    return check(values, path.parent)


def check(values: dict[str, Any], folder: Path) -> Config:
    """Check a configuration's values.

    Raises:
        ConfigError: a line for each thing that is wrong.
    """
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError(
            [line for item in error.errors(include_input=False, include_url=False) for line in _lines(item)]
        ) from error
    return _absolute(config, folder.absolute())


def _absolute(config: Config, folder: Path) -> Config:
    """The same with paths that do not depend on where the broker was started."""

    def of(path: Path | None) -> Path | None:
        return None if path is None else folder / path.expanduser()

    services = tuple(
        service.model_copy(update={"folder": of(service.folder), "log": of(service.log)})
        if isinstance(service, ChildService)
        else service
        for service in config.service
    )
    memory = config.memory
    if isinstance(memory, LockMemory):
        memory = memory.model_copy(update={"path": of(memory.path)})
    return config.model_copy(
        update={
            "state_dir": of(config.state_dir),
            "token_file": of(config.token_file),
            "service": services,
            "memory": memory,
        }
    )


def token_of(config: Config) -> str | None:
    """The token that calls must carry; None where none is wanted.

    Raises:
        ConfigError: it cannot be read, is empty, or cannot be sent in a header.
    """
    if config.token is not None:
        where, text = "token", config.token.get_secret_value()
    elif config.token_env is not None:
        where, text = config.token_env, os.environ.get(config.token_env, "")
    elif config.token_file is not None:
        where = str(config.token_file)
        try:
            text = config.token_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ConfigError([f"token_file: cannot read {where}: {why}"]) from error
    else:
        return None
    text = text.strip()
    if not text or not text.isascii() or not text.isprintable():
        raise ConfigError([f"the token in {where} must be printable ASCII, and not empty"])
    return text


def _lines(item: ErrorDetails) -> list[str]:
    where = ".".join(str(part) for part in item["loc"])
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        return [f"{where}: there is no such key{_hint(item['loc'])}"]
    if item["type"] == "missing":
        return [f"{where}: is missing"]
    if not where:
        return message.splitlines()
    return [f"{where}: {message[0].lower()}{message[1:]}"]


_KNOWN = sorted(
    {name for part in (Config, LeaseRules, Ready, ChildService, NoMemory, LockMemory) for name in part.model_fields}
)


def _hint(location: tuple[int | str, ...]) -> str:
    near = difflib.get_close_matches(str(location[-1]), _KNOWN, n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""
