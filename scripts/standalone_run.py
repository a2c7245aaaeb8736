"""A standalone Voxint on stand-ins in a folder of its own, for the scripts that show what people see."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import wave
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psycopg

import voxint.doctor.checks
import voxint.wiring  # noqa: F401 - loaded once, for the commands of `at_once`
from voxint.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

READY_SECONDS = 120
STOP_SECONDS = 60


class Run:
    """Started on entering, stopped and gone on leaving. `environ` are settings of this run."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="voxint-shown-")
        self.home = Path(self._folder.name) / "home"
        self.control = Path(self._folder.name) / "stand-ins.json"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPU_", "LLM_", "VOXINT_"))}
        self.environ = {
            **{name: value for name, value in kept.items() if name not in {"DATABASE_URL", "REDIS_URL"}},
            "VOXINT_HOME": str(self.home),
            "STUB_CONTROL": str(self.control),
            **environ,
        }
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.stand_ins({})
        log = Path(self._folder.name) / "standalone.log"
        with log.open("w") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "voxint", "standalone", "--stand-ins"],
                env=self.environ,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        self.until(lambda: "ready:" in log.read_text() or None, READY_SECONDS, "standalone is not ready")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stand_ins({})
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS)
            finally:
                self.voxint("standalone", "--stop")
        self._folder.cleanup()

    def voxint(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """One command, as its user has it."""
        return subprocess.run(
            [sys.executable, "-m", "voxint", *arguments],
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            check=False,
        )

    def at_once(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """The same without a program's start: some phases are shorter than that takes on a busy machine."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                os.environ.clear()
                os.environ.update({**self.environ, **environ})
                status = main(arguments)
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(arguments, code, out.read(), err.read())

    def must(self, *arguments: str) -> str:
        """A command that must work; its standard output."""
        done = self.voxint(*arguments)
        if done.returncode:
            raise SystemExit(f"voxint {' '.join(arguments)}: {done.stderr or done.stdout}")
        return done.stdout

    def stand_ins(self, changes: Mapping[str, Any]) -> None:
        """What the stand-ins do from now on: see voxint_models.stub.behaviour."""
        written = self.control.with_suffix(".new")
        written.write_text(json.dumps(changes))
        written.replace(self.control)

    def value(self, query: str) -> Any:  # noqa: ANN401 - what the query gives
        """The first value of a query: a command would take longer than some phases last."""
        lines = (self.home / "voxint.env").read_text().splitlines()
        (url,) = (line.partition("=")[2] for line in lines if line.startswith("DATABASE_URL="))
        with psycopg.connect(url) as connection:
            row = connection.execute(query.encode()).fetchone()
        return None if row is None else row[0]

    def work(self, lane: str, state: str) -> int:
        """How much of a lane's work is `queued` or `running`."""
        return int(self.value(f"SELECT count(*) FROM work_item WHERE lane = '{lane}' AND state = '{state}'"))

    def until_phase(self, *phases: str, seconds: float = 300) -> str:
        """Wait for one of these phases; which one it is."""

        def there() -> str | None:
            phase = self.value("SELECT phase FROM gpu_phase")
            return str(phase) if phase in phases else None

        return str(self.until(there, seconds, f"never came to {' or '.join(phases)}"))

    def until(self, true: Callable[[], Any], seconds: float, what: str) -> Any:  # noqa: ANN401 - what `true` gives
        """Wait until something is so; gives it."""
        end = time.monotonic() + seconds
        while True:
            found = true()
            if found:
                return found
            if time.monotonic() > end or (self._process is not None and self._process.poll() is not None):
                said = "; ".join(self.must("gpu-phase", "history").splitlines()[-5:]) if self._ready() else ""
                raise SystemExit(f"{what} within {seconds:.0f} s. {said}")
            time.sleep(0.1)  # noqa: TID251 - a script that waits for other processes

    def _ready(self) -> bool:
        return (self.home / "voxint.env").exists()

    def add_recordings(self, number: int, seconds: int = 60) -> None:
        """Queue recordings of so many seconds of sound; a stand-in hears a turn every four."""
        sound = b"".join((i * 37 % 2000).to_bytes(2, "little") for i in range(16_000))
        for count in range(number):
            path = Path(self._folder.name) / f"talk {count + 1}.wav"
            with wave.open(str(path), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(16_000)
                file.writeframes(sound * seconds)
            self.must("runs", "add", str(path))
