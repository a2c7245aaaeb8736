"""The memory's part of the configuration: how it is seen that the GPU is free."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from voxint_broker.config_parts import Argv, ConfigPart, Seconds


class Memory(ConfigPart):
    """The proof that the GPU is free. Two readings in a row must say so, and a failed reading says nothing."""

    readings: Annotated[int, Field(ge=1, le=10)] = Field(2, description="Readings in a row that must say free.")
    interval_seconds: Annotated[float, Field(ge=0.001, le=60)] = Field(0.002, description="Time between two of them.")
    limit_seconds: Seconds = Field(60, description="The longest wait for free memory.")


class NoMemory(Memory):
    """No proof beyond the processes being gone. Only for a service whose memory goes with its processes."""

    kind: Literal["none"]


class LockMemory(Memory):
    """A lock file stands for the GPU: whoever has a model loaded keeps a lock on it (flock)."""

    kind: Literal["lock"]
    path: Path = Field(description="The lock file.")


class FreeMemory(Memory):
    """Kinds that read how much is free."""

    need_free_mib: Annotated[int, Field(gt=0)] = Field(description="MiB that must be free, on each GPU.")
    answer_seconds: Annotated[float, Field(gt=0, le=60)] = Field(5, description="The longest wait for one reading.")


class SeenMemory(FreeMemory):
    """Kinds that also say which processes use the GPU."""

    lease_programs: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (),
        description=(
            "Texts: a program that uses the GPU during a lease and has none of them in its name is reported. "
            "None: only those are that were on the GPU when the lease began."
        ),
    )


class NvmlMemory(SeenMemory):
    """NVIDIA's management library, as nvidia-smi uses it."""

    kind: Literal["nvml"]
    gpus: Annotated[tuple[int | str, ...], Field(min_length=1)] = Field(
        (0,), description="GPUs by index, or by UUID, which does not change with the order of the cards."
    )


class SysfsMemory(SeenMemory):
    """AMD's driver, by its files in /sys."""

    kind: Literal["sysfs"]
    cards: Annotated[tuple[Annotated[str, Field(pattern=r"^card[0-9]+$")], ...], Field(min_length=1)] = Field(
        ("card0",), description="The cards, by their names in /sys/class/drm."
    )
    root: Path = Field(Path("/sys/class/drm"), description="Where the cards are.")
    kfd: Path = Field(Path("/sys/class/kfd/kfd/proc"), description="Where the processes on AMD GPUs are.")


class CommandMemory(FreeMemory):
    """A command that prints the free memory in MiB, a line for each GPU. Anything else it does is an unknown."""

    kind: Literal["command"]
    command: Argv = Field(description="The program and its arguments; no shell reads them.")


AnyMemory = Annotated[NoMemory | LockMemory | NvmlMemory | SysfsMemory | CommandMemory, Field(discriminator="kind")]
