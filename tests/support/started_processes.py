"""Processes of a test: each with its own log, and all of them ended with the test, by their ids."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


@dataclass
class Processes:
    """Starts processes for a test, each with its own log; whatever still runs at the end is ended by its id."""

    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(
        self, argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, name: str = "process"
    ) -> subprocess.Popen[bytes]:
        """Start it in a session of its own; `python` as the first word is the interpreter of the tests."""
        words = [str(word) for word in argv]
        if words[0] == "python":
            words[0] = sys.executable
        # A suite that a script starts with `&` ignores ctrl-C, and so would all that it starts: `nohup` is respected.
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        with self.log(name).open("ab") as output:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def log(self, name: str = "process") -> Path:
        """The file that a process of that name writes to."""
        return self.folder / f"{name}.log"

    def end(self, process: subprocess.Popen[bytes], number: int = signal.SIGTERM, limit_seconds: float = 15) -> int:
        """End it and its children: the given signal, then SIGKILL; gives its exit code."""
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(limit_seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return process.wait(10)

    def end_all(self) -> None:
        """End whatever still runs, the youngest first."""
        for process in reversed(self.started):
            self.end(process)
