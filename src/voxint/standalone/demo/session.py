"""The standalone Voxint of a demo: a child process, and the demo looks at it as any other program would."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Self

from sqlalchemy.exc import SQLAlchemyError

from voxint.gpu_phase import lanes
from voxint.gpu_phase.model import Lane, Phase
from voxint.settings import load_settings
from voxint.standalone import tether
from voxint.standalone.demo.items import DemoError
from voxint.standalone.environment import read
from voxint.standalone.waiting import wait_for
from voxint.wiring import make

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from voxint.standalone.home import Home
    from voxint.wiring import Parts

UP_SECONDS = 180.0
STOP_SECONDS = 60.0


class Session:
    """Between enter and exit, `voxint standalone` runs on the folder."""

    def __init__(self, home: Home, environ: Mapping[str, str], *, stand_ins: bool) -> None:
        self._home = home
        self._environ = environ
        self._argv = [sys.executable, "-m", "voxint", "standalone", "--no-link", "--data", str(home.folder)]
        self._argv += ["--stand-ins"] if stand_ins else []
        self._log = home.logs / "standalone.log"
        self._child: subprocess.Popen[bytes] | None = None
        self._parts: Parts | None = None

    def __enter__(self) -> Self:
        """Start it. It stops by itself, in order, should this process be killed."""
        self._log.write_bytes(b"")
        self._home.environment.unlink(missing_ok=True)
        self._child = tether.start(self._argv, self._log, env=self._environ, death_signal=signal.SIGTERM)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it, in order."""
        if self._parts is not None:
            self._parts.close()
        if self._child is None:
            return
        self._child.terminate()
        try:
            self._child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def up(self) -> Parts:
        """What looks at it, once it has said where its database is and the language model answers.

        Raises:
            DemoError: it ended, or it did not come so far.
        """
        if not wait_for(self._written, UP_SECONDS, every_seconds=0.1):
            raise DemoError(f"Voxint did not start within {UP_SECONDS:g} s: see {self._home.logs}")
        parts = make(load_settings(read(self._home)))
        self._parts = parts
        if not wait_for(lambda: self._turning(parts), UP_SECONDS, every_seconds=0.1):
            raise DemoError(f"the language model did not answer within {UP_SECONDS:g} s: see {self._home.logs}")
        return parts

    def check(self) -> None:
        """Look whether it still runs.

        Raises:
            DemoError: it does not; with what it said last.
        """
        if self._child is not None and self._child.poll() is not None:
            lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
            said = [line.removeprefix("error: ").removeprefix("standalone: ") for line in lines if line.strip()]
            raise DemoError(said[-1] if said else f"Voxint ended with exit {self._child.returncode}")

    def _written(self) -> bool:
        self.check()
        return self._home.environment.exists()

    def _turning(self, parts: Parts) -> bool:
        """The language model answers, or the GPU is already on its way: an earlier demo was cut, and goes on."""
        self.check()
        try:
            stored = parts.phase_store.read()
            now = parts.phase_store.now()
        except SQLAlchemyError:
            return False
        if stored is None:
            return False
        away = stored.state.phase is not Phase.LLM
        return away or lanes.is_open(Lane.POST, stored.state, now, parts.settings.policy)
