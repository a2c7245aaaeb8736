"""What a service printed, wherever its control keeps it, and what the log says of its placement."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from voxint.services.placement.regimes import printed, starts_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from voxint.services.placement.judge import Printed
    from voxint.settings import Settings

_FILE_BYTES = 64 << 20
_LINES_OF_A_TICK = 2000


class NoLogError(Exception):
    """The log cannot be read from here; the message says why, and what to do instead."""


@runtime_checkable
class KeepsLogs(Protocol):
    """A control that can give what a service printed, as an engine does."""

    def log(self, name: str, lines: int) -> list[str]:
        """The newest lines, oldest first, each with the engine's own time. Empty where there are none to be had."""


@runtime_checkable
class KeepsLogFiles(Protocol):
    """A control whose services print into files."""

    def log_of(self, name: str) -> Path:
        """The file of one service."""


def log_lines(control: object, name: str, lines: int) -> list[str]:
    """The newest lines of a service's log, oldest first.

    Args:
        control: the control of the services.
        name: the service.
        lines: how many at most.

    Raises:
        NoLogError: there is no log to be had from here.
    """
    if isinstance(control, KeepsLogs):
        return control.log(name, lines)
    if isinstance(control, KeepsLogFiles):
        path = control.log_of(name)
        try:
            return _tail(path)[-lines:]
        except OSError as error:
            raise NoLogError(f"cannot read the log of {name}, {path}: {error.strerror or error}") from error
    raise NoLogError(f"the log of {name} cannot be read from here")


def printed_by(
    control: object, settings: Settings, gpu_rate: Callable[[str], float | None]
) -> Callable[[str], Printed | None]:
    """Gives what a text-to-speech service's log says of it; None for a service whose log is not known to tell.

    Args:
        control: the control of the services.
        settings: names the services that read texts aloud.
        gpu_rate: this host's own rate of a service on the GPU, where one is kept.
    """

    def look(name: str) -> Printed | None:
        if settings.services[name].warm_up != "speech":
            return None
        try:
            lines = log_lines(control, name, _LINES_OF_A_TICK)
        except NoLogError:
            return None
        return printed(starts_of(lines), gpu_rate(name))

    return look


def _tail(path: Path) -> list[str]:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _FILE_BYTES))
        return file.read(_FILE_BYTES).decode(errors="replace").splitlines()
