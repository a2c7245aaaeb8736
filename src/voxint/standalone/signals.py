"""Signals for a process whose main thread waits: told apart, counted, and never lost between two looks."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import FrameType, TracebackType

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Signals:
    """Between enter and exit: SIGTERM, SIGINT and SIGHUP ask for a stop, and a child's end ends a wait."""

    def __init__(self) -> None:
        self.asked = 0
        """How many times a stop was asked for."""
        self._read, self._write = -1, -1
        self._before: dict[int, object] = {}
        self._wakeup_before = -1

    def __enter__(self) -> Self:
        """Take the signals over."""
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in STOPS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` asks to be left alone
                self._before[number] = signal.signal(number, self._stop)
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give them back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._read)
        os.close(self._write)

    def wait(self, seconds: float) -> None:
        """Wait for a signal, or for so long."""
        select.select([self._read], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 512):
                pass

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self.asked += 1
