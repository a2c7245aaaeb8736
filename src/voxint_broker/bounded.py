"""Calls that may hang: each has a limit, and one that is still stuck is not made a second time."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Value = TypeVar("Value")

_OUTPUT_SHOWN = 300
"""Characters of a failed command's output that are told: of its end, where programs say what was wrong."""


_KILLED_SECONDS = 2.0
"""How long a process may be there after SIGKILL before it counts as stuck."""

_stuck: dict[tuple[str, ...], subprocess.Popen[bytes]] = {}
"""By command, the process that no signal ended."""


class StuckError(Exception):
    """A call did not end within its limit, or an earlier one is still stuck."""


class Bounded(Generic[Value]):
    """A function of a library that may hang in a driver. While it does, asking again says so at once."""

    def __init__(self, function: Callable[[], Value], seconds: float) -> None:
        self._function = function
        self._seconds = seconds
        self._running: threading.Thread | None = None
        self._lock = threading.Lock()

    def __call__(self) -> Value:
        """Call it.

        Raises:
            StuckError: it did not end in time.
            Exception: whatever the function raises.
        """
        with self._lock:
            if self._running is not None and self._running.is_alive():
                raise StuckError("an earlier look is still stuck")
            outcome: list[Value] = []
            failure: list[Exception] = []

            def run() -> None:
                try:
                    outcome.append(self._function())
                except Exception as error:  # noqa: BLE001 - it is raised again by the caller
                    failure.append(error)

            self._running = threading.Thread(target=run, daemon=True, name="bounded-call")
            self._running.start()
            self._running.join(self._seconds)
            if failure:
                raise failure[0]
            if not outcome:
                raise StuckError(f"no answer within {self._seconds:g} s")
            return outcome[0]


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended: its exit status, its output, and a problem in words where it did not end well."""

    status: int | None
    output: str = ""
    problem: str = ""


def run(argv: Sequence[str], seconds: float) -> Ran:
    """Run a command to its end, at most `seconds`; then it and what it started are killed.

    A process that hangs in a driver is not ended by any signal. It is left alone, and while it is there, the same command
    is not run again.
    """
    key = tuple(argv)
    if (stuck := _stuck.get(key)) is not None:
        if stuck.poll() is None:
            return Ran(None, "", f"{argv[0]}: an earlier run, process {stuck.pid}, is still stuck and cannot be killed")
        del _stuck[key]
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return Ran(None, "", f"cannot run {argv[0]}: {why}")
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _kill_group(process)
        problem = f"{argv[0]} did not end within {seconds:g} s"
        if _ended(process):
            return Ran(None, "", problem)
        _stuck[key] = process
        return Ran(None, "", f"{problem}, and cannot be killed")
    text = output.decode("utf-8", "replace")
    if process.returncode == 0:
        return Ran(0, text)
    said = _end_of(text)
    how = f"exit status {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
    return Ran(process.returncode, text, f"{argv[0]}: {how}{': ' + said if said else ''}")


def _ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_KILLED_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end_of(output: str) -> str:
    """The last of what was said, from the beginning of a word on."""
    said = " ".join(output.split())
    if len(said) <= _OUTPUT_SHOWN:
        return said
    _, _, whole_words = said[-_OUTPUT_SHOWN:].partition(" ")
    return f"... {whole_words or said[-_OUTPUT_SHOWN:]}"


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
    if process.stdout is not None:
        process.stdout.close()
