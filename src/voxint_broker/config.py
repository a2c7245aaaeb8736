"""The configuration file: every key, its default and its rule. All problems are told at once, not the first alone."""

from __future__ import annotations

import difflib
import hashlib
import os
import tomllib
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, SecretStr, ValidationError, model_validator

from voxint_broker.config_memory import AnyMemory  # noqa: TC001 - pydantic reads the annotations
from voxint_broker.config_parts import Address, Argv, ConfigPart
from voxint_broker.config_services import AnyService  # noqa: TC001 - the same

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import BaseModel
    from pydantic_core import ErrorDetails


class ConfigError(ValueError):
    """A configuration that cannot be used: one clear line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class LeaseRules(ConfigPart):
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


class Config(ConfigPart):
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
    log_json: bool = Field(False, description="Log lines as JSON.")  # noqa: FBT003
    audit_file: Path | None = Field(None, description="A file to which every grant and release is added.")
    notify: Argv | None = Field(
        None, description="A command that is told what a person should know, as JSON on its stdin."
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

    @property
    def owner_mark(self) -> str:
        """What tells this broker's child processes from those of another one: its state folder."""
        return hashlib.sha256(str(self.state_dir).encode()).hexdigest()[:16]

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
            if service.readiness is None:
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
            [line for item in _own(error.errors(include_input=False, include_url=False)) for line in _lines(item)]
        ) from error
    try:
        checked: Config = _absolute(config, folder.absolute())
    except RuntimeError as error:
        raise ConfigError([f"a path begins with ~, and there is no such home: {error}"]) from error
    return checked


def _absolute(part: Any, folder: Path) -> Any:  # noqa: ANN401 - a table of the file, or a value in it
    """The same with paths that do not depend on where the broker was started."""
    if isinstance(part, Path):
        return folder / part.expanduser()
    if isinstance(part, tuple):
        return tuple(_absolute(each, folder) for each in part)
    if isinstance(part, ConfigPart):
        return part.model_copy(
            update={name: _absolute(getattr(part, name), folder) for name in type(part).model_fields}
        )
    return part


def token_of(config: Config) -> str | None:
    """The token that calls must carry; None where none is wanted.

    Raises:
        ConfigError: it cannot be read, is empty, or cannot be sent in a header.
    """
    if config.token is not None:
        return _sendable(config.token.get_secret_value(), "token")
    if config.token_env is not None:
        return _sendable(os.environ.get(config.token_env, ""), config.token_env)
    return token_in(config.token_file) if config.token_file is not None else None


def token_in(path: Path) -> str:
    """The token that a file holds.

    Raises:
        ConfigError: it cannot be read, is empty, or cannot be sent in a header.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError([f"token_file: cannot read {path}: {why}"]) from error
    return _sendable(text, str(path))


def _sendable(text: str, where: str) -> str:
    text = text.strip()
    if not text or not text.isascii() or not text.isprintable():
        raise ConfigError([f"the token in {where} must be printable ASCII, and not empty"])
    return text


def _own(items: list[ErrorDetails]) -> list[ErrorDetails]:
    """Without lists that are only too short because what stands in them is wrong."""
    places = [item["loc"] for item in items]
    return [
        item
        for item in items
        if item["type"] != "too_short"
        or not any(len(place) > len(item["loc"]) and place[: len(item["loc"])] == item["loc"] for place in places)
    ]


def _where(location: tuple[int | str, ...]) -> str:
    """The place in the file: without the kinds, which the library adds after a table that has them."""
    parts: list[str] = []
    before: int | str = ""
    for part in location:
        if not (isinstance(before, int) or before in {"memory", "owner"}) or (len(parts) > 2 and before != "owner"):
            parts.append(str(part))
            before = part
        else:
            before = ""
    return ".".join(parts)


def _lines(item: ErrorDetails) -> list[str]:
    where = _where(item["loc"])
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        return [f"{where}: there is no such key{_hint(item['loc'])}"]
    if item["type"] == "missing":
        return [f"{where}: is missing"]
    if item["type"] == "union_tag_not_found":
        return [f"{where}.kind: is missing"]
    if item["type"] == "union_tag_invalid":
        return [f"{where}.kind: must be one of {item['ctx']['expected_tags']}"]
    if not where:
        return message.splitlines()
    return [f"{where}: {message[0].lower()}{message[1:]}"]


def _names(part: type[BaseModel]) -> set[str]:
    names = set(part.model_fields)
    for below in part.__subclasses__():
        names |= _names(below)
    return names


def _hint(location: tuple[int | str, ...]) -> str:
    near = difflib.get_close_matches(str(location[-1]), sorted(_names(ConfigPart)), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""
