"""Puts a configured broker together and serves it until a signal asks it to end."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from typing import TYPE_CHECKING

import uvicorn

from voxint_broker.adapters.making import adapter_of
from voxint_broker.config import Config, ConfigError, check, host_of, token_of
from voxint_broker.engine import Broker
from voxint_broker.events import Events
from voxint_broker.journal import Journal
from voxint_broker.memory.gauges import gauge_of
from voxint_broker.server import Guard, make_app
from voxint_broker.simulated import Behaviour, SimulatedService
from voxint_broker.switching import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import FrameType

log = logging.getLogger("voxint_broker")

_HEADERS_LIMIT = 16 * 1024
_CONNECTIONS = 200
_KNOWN_HOSTS = frozenset({"127.0.0.1", "localhost", "::1", "host.docker.internal"})


class ListenError(Exception):
    """An address cannot be listened at. The text says which and why."""


def make_broker(config: Config, hook: Callable[[str], None] | None = None) -> Broker:
    """The broker that a configuration describes, not yet started."""
    parts = [
        Part(adapter_of(service, config.owner_mark), service.readiness, service.drain) for service in config.service
    ]
    call = hook or (lambda _point: None)
    journal = Journal(config.state_dir, call)
    events = Events(config.audit_file, config.notify)
    return Broker(parts, gauge_of(config.memory), config.memory, config.lease, journal, events=events, hook=call)


def sockets_of(config: Config) -> list[socket.socket]:
    """A bound socket for each address.

    Raises:
        ListenError: one of them cannot be had.
    """
    found: list[socket.socket] = []
    for address in config.listen:
        host, port = host_of(address), int(address.rpartition(":")[2])
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, port))
            bound.listen(128)  # from now on callers wait, where they would be refused
        except OSError as error:
            for each in (*found, bound):
                each.close()
            raise ListenError(f"cannot listen at {address}: {error.strerror}") from error
        found.append(bound)
    return found


def serve(config: Config, broker: Broker | None = None, reload: Callable[[], Config] | None = None) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reads the configuration again.

    Args:
        config: where to listen, and what the broker handles.
        broker: another broker than the configuration's, as a made-up one.
        reload: reads the configuration again; raises ConfigError.

    Raises:
        ConfigError: the token cannot be read.
        ListenError: an address cannot be had.
        JournalError: the journal cannot be used.
    """
    token = token_of(config)
    sockets = sockets_of(config)
    broker = broker or make_broker(config, _kill_hook())
    try:
        broker.start()
    except BaseException:
        for each in sockets:
            each.close()
        raise
    guard = make_app(broker, token=token, hosts=hosts_of(config))
    if reload is not None:
        reloading = _Reloading(config, broker, guard, reload)
        signal.signal(signal.SIGHUP, lambda _number, _frame: reloading.begin())
    options = uvicorn.Config(
        guard,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        loop="asyncio",
        http="h11",
        ws="none",
        h11_max_incomplete_event_size=_HEADERS_LIMIT,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=2,
    )
    for address in sockets:
        log.info("listening at %s:%s", *address.getsockname()[:2])
    try:
        _Server(options).run(sockets)
    finally:
        broker.stop(stop_services=config.stop_services_on_exit)
        for each in sockets:
            each.close()


def hosts_of(config: Config) -> frozenset[str]:
    """The host names by which the broker may be called."""
    listening = {host_of(address) for address in config.listen}
    return _KNOWN_HOSTS | listening | {host.lower() for host in config.allowed_hosts}


class _Reloading:
    """Takes a changed configuration over, or keeps the old one and says why."""

    def __init__(self, config: Config, broker: Broker, guard: Guard, read: Callable[[], Config]) -> None:
        self._config = config
        self._broker = broker
        self._guard = guard
        self._read = read

    def begin(self) -> None:
        """Do it on a thread: a signal may come in the middle of anything."""
        threading.Thread(target=self._run, name="broker-reload").start()

    def _run(self) -> None:
        try:
            config = self._read()
            token = token_of(config)
            problems = list(self._fixed(config))
            if problems:
                raise ConfigError(problems)  # noqa: TRY301 - told together with what reading finds
        except ConfigError as error:
            for problem in error.problems:
                log.error("the old configuration stays: %s", problem)  # noqa: TRY400 - expected: the text says all
            return
        parts = []
        for service, part in zip(config.service, self._broker.parts, strict=True):
            part.adapter.reconfigure(service)
            parts.append(Part(part.adapter, service.readiness, service.drain))
        self._broker.reconfigure(parts, gauge_of(config.memory), config.memory, config.lease)
        self._guard.allow(token, hosts_of(config))
        self._config = config
        log.info("the configuration was read again")

    def _fixed(self, config: Config) -> Iterator[str]:
        """What cannot change while the broker runs."""
        for name in ("listen", "state_dir", "audit_file", "notify", "stop_services_on_exit", "log_json"):
            if getattr(config, name) != getattr(self._config, name):
                yield f"{name} cannot change while the broker runs: restart it"
        before = [(service.name, service.kind) for service in self._config.service]
        if [(service.name, service.kind) for service in config.service] != before:
            yield "services cannot come, go or change their kind while the broker runs: restart it"


def simulate(listen: str, state_dir: Path, behaviour: Behaviour) -> None:
    """Serve a broker over a made-up card and service.

    Raises:
        ConfigError: the address is none.
        ListenError: the address cannot be had.
        JournalError: the folder cannot be used.
    """
    service = SimulatedService(behaviour=behaviour)
    # The configuration's own service is never made: it only has to be one.
    unused = {"name": "simulated", "kind": "child", "command": ["true"], "ready_url": "http://127.0.0.1:1/"}
    config = check(
        {"listen": [listen], "state_dir": str(state_dir), "memory": {"kind": "none"}, "service": [unused]}, state_dir
    )
    broker = Broker([Part(service, None)], service, config.memory, config.lease, Journal(config.state_dir))
    serve(config, broker)


class _Server(uvicorn.Server):
    """A server whose signal ends it, and not the process after it: the broker has things to put in order then."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        del sig, frame
        self.should_exit = True


def _kill_hook() -> Callable[[str], None] | None:
    """For the tests of crashes alone: VOXINT_BROKER_KILL_AT=POINT:N kills the broker at the N-th time at a point."""
    wanted = os.environ.get("VOXINT_BROKER_KILL_AT")
    if not wanted:
        return None
    point, _, count = wanted.rpartition(":")
    left = int(count)

    def hook(name: str) -> None:
        nonlocal left
        if name == point:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook
