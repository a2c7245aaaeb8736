"""Runs everything of Voxint on one machine: starts it in order, keeps it running, stops it in order.

One thread, which starts every child: the kernel ends a tethered child with the thread that started it. After a kill -9
of this process its children are gone; PostgreSQL and the model processes live on, and the next start adopts them.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from voxint.access.address import base_address, link_address
from voxint.access.store import LINK_LASTS
from voxint.db import migrate
from voxint.gpu_phase.model import Condition
from voxint.gpu_phase.wording.figures import span
from voxint.settings import load_settings
from voxint.standalone import broker_config, left_over
from voxint.standalone.environment import PORT_NAMES, PREFERRED_PORTS, Models, Plan, processors
from voxint.standalone.hand_back import give_back_work, hand_back, take_from_the_dead
from voxint.standalone.home import LOOPBACK
from voxint.standalone.keeper import Keeper, Program
from voxint.standalone.postgres import EmbeddedPostgres, PostgresError
from voxint.standalone.signals import Signals
from voxint.standalone.valkey import EmbeddedValkey, ValkeyError
from voxint.standalone.waiting import wait_for
from voxint.wiring import make

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from voxint.standalone.home import Home
    from voxint.wiring import Parts

DATABASE = "voxint"
HAND_BACK_SECONDS = 10.0
"""How long a stop waits for the GPU to go back."""
READY_SECONDS = 60.0
"""After so long a Voxint that is not up says what is missing; it goes on trying."""
_LOOK_SECONDS = 0.25
_SERVERS_SECONDS = 2.0  # the servers' own look is dearer


@dataclass(frozen=True, slots=True)
class Options:
    """How to run."""

    models: Models = "offline"
    changes: Mapping[str, str] = field(default_factory=dict)
    """Settings that take the place of the user's own."""
    with_link: bool = True
    """Whether a link that signs in at the console is printed, where there is no password."""
    prefer_ports: Mapping[str, int] = field(default_factory=lambda: dict(PREFERRED_PORTS))


class Supervisor:
    """Everything on one data folder. `run` does it all."""

    def __init__(self, home: Home, options: Options, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
        self.home = home
        self._options = options
        self._environ = environ
        self._say = say
        self._postgres = EmbeddedPostgres(home.postgres, home.logs / "postgres.log")
        self._valkey = EmbeddedValkey(home.valkey, home.logs / "valkey.log")
        self._keepers: list[Keeper] = []
        self._ports: dict[str, int] = {}
        self._servers_due = 0.0
        self._remembered = True

    def run(self) -> int:
        """Run until a signal asks for the end; the exit status.

        Raises:
            HomeError: the folder cannot be used, or is used already.
            PostgresError: the database does not start.
            ValkeyError: Redis' stand-in does not start.
            SchemaError: a newer version has been at work on the database.
        """
        self.home.make()
        with self.home.sole_use(), Signals() as signals:
            try:
                parts = self._start(signals)
            except BaseException:
                self._stop_servers()
                raise
            try:
                self._look_after(parts, signals)
            finally:
                self._stop(parts, signals)
                parts.close()
        return 0

    # --- start -------------------------------------------------------------------------------------------------

    def _start(self, signals: Signals) -> Parts:
        ended = left_over.end_children(self.home)
        if ended:
            self._say(f"ended {ended} processes that an earlier Voxint, which was killed, left behind")
        self._valkey.start()
        self._postgres.start()
        self._postgres.make_database(DATABASE)
        plan = self._plan()
        settings = plan.settings(self._environ, self._options.changes)
        environment = plan.environment(self._environ, self._options.changes)
        loaded = load_settings(environment)
        parts = make(loaded)
        migrate.upgrade(parts.engine)
        put_back = take_from_the_dead(parts.engine, loaded.work_attempts)
        if put_back:
            self._say(f"{put_back} pieces of work had no worker any more, and go on from the queue")
        plan.write(settings)
        broker_config.write(plan)
        if not signals.asked:
            self._start_programs(environment)
        self._say(f"data in {self.home.folder}, logs in {self.home.logs}")
        return parts

    def _plan(self) -> Plan:
        self._ports = self.home.choose_ports(PORT_NAMES, self._options.prefer_ports)
        return Plan(self.home, self._ports, self._options.models, self._postgres.url(DATABASE), self._valkey.url)

    def _start_programs(self, environment: Mapping[str, str]) -> None:
        self._keepers = [Keeper(each, self.home.logs / f"{each.name}.log", environment) for each in programs(self.home)]
        for keeper in self._keepers:
            keeper.start()
        self._remember()

    def _remember(self) -> None:
        """Write down which children there are. Where that fails it is tried again: the children go on meanwhile."""
        try:
            left_over.remember(self.home, [keeper.pid for keeper in self._keepers if keeper.pid is not None])
        except OSError as error:
            if self._remembered:
                self._say(f"could not write {self.home.children}: {error.strerror or error}; it is tried again")
            self._remembered = False
        else:
            self._remembered = True

    # --- while it runs -----------------------------------------------------------------------------------------

    def _look_after(self, parts: Parts, signals: Signals) -> None:
        begun = time.monotonic()
        since = parts.phase_store.now()
        told = False
        while not signals.asked:
            self._look_at_children()
            self._look_at_servers()
            if not told:
                missing = self._missing(parts, since)
                told = not missing or time.monotonic() - begun > READY_SECONDS
                if not missing:
                    self._say(f"ready: the console is at http://{parts.settings.console_bind}/ ; stop with Ctrl-C")
                    self._say_how_to_sign_in(parts)
                elif told:
                    self._say(f"not up after {READY_SECONDS:g} s: {', '.join(missing)}; see {self.home.logs}")
            signals.wait(_LOOK_SECONDS)

    def _say_how_to_sign_in(self, parts: Parts) -> None:
        if not self._options.with_link or parts.settings.console_password:
            return
        try:
            if parts.access.has_password():
                return
            address = link_address(base_address(parts.settings.console_bind), parts.access.make_link())
        except SQLAlchemyError:
            return
        self._say(f"sign in, once, within {span(LINK_LASTS)}: {address}")
        self._say("`voxint console link` makes another link; a password can be set under Settings")

    def _look_at_children(self) -> None:
        changed = not self._remembered
        for keeper in self._keepers:
            before = keeper.pid
            ended = keeper.look()
            changed = changed or keeper.pid != before
            if ended is not None:
                said = f": {ended.said}" if ended.said else ""
                self._say(f"{ended.name} ended ({ended.how}){said}; started again in {ended.again_in_seconds:g} s")
        if changed:
            self._remember()

    def _look_at_servers(self) -> None:
        """Both servers are looked at now and then; one that is gone is started again."""
        if time.monotonic() < self._servers_due:
            return
        self._servers_due = time.monotonic() + _SERVERS_SECONDS
        try:
            if self._postgres.running() is None:
                self._say("PostgreSQL ended; it is started again")
                self._postgres.start()
            if self._valkey.process is None or self._valkey.process.poll() is not None:
                self._say("Valkey ended; it is started again")
                self._valkey.start()
        except (PostgresError, ValkeyError, OSError) as error:
            self._say(str(error))
            self._servers_due = time.monotonic() + 5 * _SERVERS_SECONDS

    def _missing(self, parts: Parts, since: datetime) -> list[str]:
        """What does not answer yet."""
        missing = [name for name in ("broker", "console") if not _listens(self._ports[name])]
        try:
            stored = parts.phase_store.read()
        except SQLAlchemyError:
            return [*missing, "database"]
        if stored is None or stored.ticked_at is None or stored.ticked_at < since:
            missing.append("gpu-phase worker")
        return missing

    # --- stop --------------------------------------------------------------------------------------------------

    def _stop(self, parts: Parts, signals: Signals) -> None:
        """In this order: no new work, the GPU back, the workers, the models, the servers. Each step is tried."""
        begun = time.monotonic()
        self._say("stopping")
        keepers = {keeper.program.name: keeper for keeper in self._keepers}
        for name in ("console", "worker"):
            if name in keepers:
                keepers[name].ask_to_stop()
        steps: list[tuple[str, Callable[[], object]]] = [
            ("hand the GPU back", lambda: keepers and hand_back(parts, HAND_BACK_SECONDS, lambda: signals.asked > 1)),
            ("stop the workers", lambda: _stop_all([keepers[name] for name in STOP_ORDER if name in keepers])),
            ("put the work back", lambda: give_back_work(parts.engine)),
            ("stop the model services", lambda: _stop_services(parts)),
            ("stop the broker", lambda: _stop_all([keepers[name] for name in ("broker",) if name in keepers])),
            ("stop the model processes", lambda: left_over.end_models(self.home)),
        ]
        for what, step in steps:
            try:
                step()
            except (SQLAlchemyError, OSError) as error:
                self._say(f"could not {what}: {type(error).__name__}")
        parts.close()
        self._stop_servers()
        self._keepers = []
        self._remember()
        self._say(f"stopped in {time.monotonic() - begun:.1f} s; start again to go on")

    def _stop_servers(self) -> None:
        try:
            self._valkey.stop()
            self._postgres.stop()
        except PostgresError as error:
            self._say(str(error))


STOP_ORDER = ("console", "worker", "beat", "gpu-phase")


def programs(home: Home) -> tuple[Program, ...]:
    """The processes, in the order of their start. The worker has little time to end: what it does is put back."""
    voxint = (sys.executable, "-m", "voxint")
    concurrency = str(max(2, min(4, processors())))
    return (
        Program("broker", (sys.executable, "-m", "voxint_broker", "serve", "--config", str(home.broker_config)), 15),
        Program("gpu-phase", (*voxint, "worker", "--gpu-phase"), 8),
        Program("worker", (*voxint, "worker", "--concurrency", concurrency), 3),
        Program("beat", (*voxint, "beat"), 5),
        Program("console", (*voxint, "serve"), 5),
    )


def _stop_all(keepers: Sequence[Keeper]) -> None:
    """All at the same time."""
    for keeper in keepers:
        keeper.ask_to_stop()
    for keeper in keepers:
        keeper.stop()


def _stop_services(parts: Parts) -> None:
    """Those that the gpu-phase worker had started and could not stop any more. A few calls: one waits for seconds."""
    for _ in range(5):
        if not any(seen.condition is Condition.RUNNING for seen in parts.services.inspect()):
            return
        parts.services.stop()


def _listens(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=0.5).close()
    except OSError:
        return False
    return True


def run_standalone(home: Home, options: Options, environ: Mapping[str, str], say: Callable[[str], None]) -> int:
    """Run everything on a data folder until a signal asks for the end; gives the exit status.

    Args:
        home: the data folder.
        options: which models, which settings.
        environ: the user's environment.
        say: takes one line for people at a time.

    Raises:
        HomeError: the folder cannot be used, or is used already.
        PostgresError: the database does not start.
        ValkeyError: Redis' stand-in does not start.
    """
    return Supervisor(home, options, environ, say).run()


def stop_standalone(home: Home, say: Callable[[str], None], limit_seconds: float = 60) -> int:
    """Stop the standalone Voxint of a folder, or what a killed one has left; gives the exit status.

    Raises:
        HomeError: the folder cannot be used.
        PostgresError: the database does not stop.
    """
    if not home.folder.is_dir():
        say(f"there is no data folder {home.folder}")
        return 1
    pid = home.runs_as()
    if pid is not None:
        if pid > 0:
            os.kill(pid, signal.SIGTERM)
        gone = wait_for(lambda: home.runs_as() is None, limit_seconds, every_seconds=0.1)
        say("stopped" if gone else f"process {pid} has not stopped within {limit_seconds:g} s; see {home.logs}")
        return 0 if gone else 1
    home.make()
    with home.sole_use():
        ended = left_over.end_children(home)
        models = left_over.end_models(home)
        postgres = EmbeddedPostgres(home.postgres, home.logs / "postgres.log")
        ran = postgres.running() is not None
        postgres.stop()
    left = [*models, *(["PostgreSQL"] if ran else []), *([f"{ended} processes of workers"] if ended else [])]
    say(f"ended what was left: {', '.join(left)}" if left else "nothing runs on this folder")
    return 0
