"""Runs a model server as a process: card first, then the socket, then the model; and ends quickly when told to."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, TypeVar

import uvicorn

from voxint_models.card import Card, Side, take_or_exit
from voxint_models.serving import app as http
from voxint_models.serving.errors import CannotServeError
from voxint_models.serving.options import read
from voxint_models.serving.service import Engine, Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fastapi import APIRouter

    from voxint_models.serving.options import Options

EngineT = TypeVar("EngineT", bound=Engine)
END_SECONDS = 2.0
"""From SIGTERM to the end of the process, at most. A request that is being served then is cut off."""


class _Server(uvicorn.Server):
    """uvicorn, with the signals left to us: it would raise them again when it is done."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(
    name: str,
    engines: Sequence[str],
    load: Callable[[Options], EngineT],
    routes: Callable[[Service[EngineT]], APIRouter],
    side: Side = Side.AUDIO,
) -> NoReturn:
    """Serve until SIGTERM. Never returns: the process's exit status is 0, 1 (cannot serve) or 70 (card taken)."""
    options = read(name, engines)
    # Whatever an engine would like to look up, everything is here already.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    card = take_or_exit(side, name)
    service = Service(name, options, load, card)
    server = _Server(
        uvicorn.Config(
            http.build(service, routes(service)),
            host=options.host,
            port=options.port,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=1,
        ),
    )

    def stop(_signal: int, _frame: object) -> None:
        server.should_exit = True
        # First of all: what comes after it may wait for a lock that the interrupted thread holds.
        deadline = threading.Timer(END_SECONDS, _end, (card, 0))
        deadline.daemon = True
        deadline.start()
        service.give_up()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    threading.Thread(target=_load, args=(service, card), daemon=True).start()
    try:
        server.run()
    except SystemExit:
        # uvicorn's way to say that it cannot listen; it has said why
        _end(card, 1)
    _end(card, 0)


def _load(service: Service[Engine], card: Card) -> None:
    began = time.monotonic()
    try:
        service.load()
    except CannotServeError as error:
        _say(f"{service.name}: cannot serve: {error}")
        _end(card, 1)
    except Exception as error:  # noqa: BLE001 - a server whose model did not load must not stay and look alive
        _say(f"{service.name}: the model could not be loaded: {type(error).__name__}: {error}")
        _end(card, 1)
    status, health = service.health()
    if status == 200:
        seconds = time.monotonic() - began
        _say(f"{service.name}: ready after {seconds:.1f} s: {health['model']} on {health['device']}")
    else:
        _say(f"{service.name}: {health.get('error')}")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _end(card: Card, status: int) -> NoReturn:
    """End at once: an inference in a library's own code would keep the interpreter, and with it the GPU's memory."""
    card.leave()
    sys.stderr.flush()
    os._exit(status)
