"""The services' part of the configuration: one class a kind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from voxint_broker.config_parts import ApiKey, Argv, ConfigPart, HttpUrl, Seconds, StopSignal


class Ready(ConfigPart):
    """When a service counts as back: it really answers, an open port is not enough."""

    url: HttpUrl = Field(description="The address that is asked until it answers.")
    status: tuple[Annotated[int, Field(ge=100, le=599)], ...] = Field((200,), description="Codes that mean ready.")
    body: str | None = Field(None, description="A JSON text to POST, as a one-token completion; empty: a GET.")
    contains: str = Field("", description="A text that the answer must hold.")
    limit_seconds: Seconds = Field(300, description="The longest wait for it.")
    answer_seconds: Seconds = Field(10, description="The longest wait for one answer.")


class Drain(ConfigPart):
    """How it is seen that a service works on something, so that its work in flight may end before it is stopped."""

    kind: Literal["llama.cpp", "vllm", "command"] = Field(
        description="llama.cpp: its /slots. vllm: its /metrics. command: exit status 0: idle, 1: at work."
    )
    url: HttpUrl | None = Field(None, description="The server's address, without a path.")
    command: Argv | None = Field(None, description="The program and its arguments; no shell reads them.")
    limit_seconds: Seconds = Field(30, description="The longest wait; then it is stopped all the same.")
    answer_seconds: Annotated[float, Field(gt=0, le=60)] = Field(2, description="The longest wait for one answer.")

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Self:
        needed = "command" if self.kind == "command" else "url"
        if getattr(self, needed) is None:
            raise ValueError(f"{needed} is needed for kind {self.kind!r}")
        return self


class Service(ConfigPart):
    """What every kind of service has."""

    name: Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9._-]+$")]
    ready_url: HttpUrl | None = Field(None, description="Short for ready.url with the defaults of [service.ready].")
    ready: Ready | None = Field(None, description="When it counts as back.")
    drain: Drain | None = Field(None, description="How its work in flight is waited for.")
    keep_running: bool | None = Field(
        None, description="Start it again when it ends by itself. Default: true for a child process, else false."
    )

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
    stop_signal: StopSignal = Field("SIGTERM", description="The signal that asks it to end.")
    stop_seconds: Seconds = Field(20, description="How long it has for that.")
    kill_seconds: Seconds = Field(5, description="How long it may be there after SIGKILL.")


class CommandService(Service):
    """A service that commands stop and start. Each is argv: no shell reads it."""

    kind: Literal["command"]
    start: Argv = Field(description="Starts it; must end by itself.")
    stop: Argv = Field(description="Stops it.")
    kill: Argv | None = Field(None, description="Ends it by force, where stop did not.")
    running: Argv = Field(description="Exit status 0: it runs; 1 or 3: it does not; anything else: unknown.")
    start_seconds: Seconds = Field(60, description="How long start may take.")
    stop_seconds: Seconds = Field(60, description="How long stop, and it until it is gone, may take.")
    kill_seconds: Seconds = Field(15, description="The same for kill.")
    look_seconds: Seconds = Field(5, description="How long running may take.")


class SystemdService(Service):
    """A systemd unit."""

    kind: Literal["systemd"]
    unit: Annotated[str, Field(pattern=r"^[A-Za-z0-9:_.@\\-]+\.[a-z]+$")] = Field(description="The unit's full name.")
    user: bool = Field(False, description="A unit of the user's own manager.")  # noqa: FBT003
    stop_seconds: Seconds = Field(95, description="How long a stop may take; systemd's own limit is 90 s.")
    kill_seconds: Seconds = Field(10, description="How long it may be there after SIGKILL.")
    systemctl: Argv = Field(("systemctl",), description="The program that talks to systemd.")


class _Engine(Service):
    socket: Path = Field(Path("/var/run/docker.sock"), description="The Docker engine's socket.")
    stop_seconds: Seconds = Field(30, description="How long containers have to end by themselves.")
    kill_seconds: Seconds = Field(10, description="How long they may be there after SIGKILL.")
    look_seconds: Annotated[float, Field(gt=0, le=60)] = Field(5, description="The longest wait for one answer.")


class DockerService(_Engine):
    """A container."""

    kind: Literal["docker"]
    container: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")] = Field(description="Its name or id.")


class ComposeService(_Engine):
    """A service of a compose project: all of its containers."""

    kind: Literal["compose"]
    project: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")] = Field(description="The project's name.")
    service: Annotated[str, Field(min_length=1)] = Field(description="The service's name in the compose file.")


Owner = Annotated[
    ChildService | CommandService | SystemdService | DockerService | ComposeService, Field(discriminator="kind")
]


class HttpService(Service):
    """A server that stays, and gives its GPU memory back when it is told to."""

    kind: Literal["http"]
    server: Literal["vllm", "ollama", "llama-swap", "llama.cpp"] = Field(description="Which one it is.")
    url: HttpUrl = Field(description="Its address, without a path.")
    models: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (), description="Models to load when it comes back (ollama, llama.cpp); none: they load when they are asked."
    )
    api_key: ApiKey | None = Field(None, description="The bearer token that the server wants.")
    level: Literal[1, 2] = Field(1, description="vLLM's sleep level: 1 keeps the weights in the main memory.")
    stop_seconds: Seconds = Field(60, description="How long it has to give its memory back.")
    asleep_seconds: Seconds = Field(10, description="How long after that the memory may take to be free.")
    answer_seconds: Annotated[float, Field(gt=0, le=600)] = Field(5, description="The longest wait for one answer.")
    owner: Owner | None = Field(
        None, description="How it is stopped altogether, where its memory is not free although it sleeps."
    )

    @model_validator(mode="before")
    @classmethod
    def _owner_has_the_name(cls, values: object) -> object:
        if isinstance(values, dict) and isinstance(values.get("owner"), dict) and "name" in values:
            return {**values, "owner": {"name": values["name"], **values["owner"]}}
        return values


AnyService = Annotated[
    ChildService | CommandService | SystemdService | DockerService | ComposeService | HttpService,
    Field(discriminator="kind"),
]
