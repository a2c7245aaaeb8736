"""One model behind one HTTP server: whether it is loaded, whose turn it is, and what /healthz says."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from voxint_models import clock
from voxint_models.serving.errors import BusyError, CancelledError, NotReadyError, WeightsMissingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from voxint_models.card import Card
    from voxint_models.serving.options import Options

T = TypeVar("T")
_LOOK_SECONDS = 0.25


class Engine(Protocol):
    """What runs a model."""

    @property
    def model(self) -> str:
        """The model's name and revision."""

    def device(self) -> str:
        """Where the weights are, asked of the loaded model itself."""

    def versions(self) -> dict[str, str]:
        """The versions of the libraries that run it."""

    def warm_up(self) -> None:
        """One small inference, so that the first recording does not find out what is broken."""


EngineT = TypeVar("EngineT", bound=Engine)


class Cancel:
    """Tells an inference that nobody waits for it any more. Engines look at it where they can stop."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Nobody waits any more."""
        self._event.set()

    def check(self) -> None:
        """Raise CancelledError where nobody waits any more."""
        if self._event.is_set():
            raise CancelledError("the inference was given up")


class Service(Generic[EngineT]):
    """A named service, its engine once that is loaded, and the one thread that inferences run in."""

    def __init__(self, name: str, options: Options, load: Callable[[Options], EngineT], card: Card) -> None:
        self.name = name
        self.options = options
        self.started_at = clock.stamp()
        self._load = load
        self._card = card
        self._engine: EngineT | None = None
        self._why_not = "loading"
        self._inside = 0
        self._running: set[Cancel] = set()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"{name}-inference")

    def load(self) -> None:
        """Load and warm up. Without weights the server stays, says so, and is not ready. Raises CannotServeError."""
        try:
            engine = self._load(self.options)
            self._thread.submit(engine.warm_up).result()
        except WeightsMissingError as error:
            self._why_not = str(error)
        else:
            self._engine = engine

    @property
    def engine(self) -> EngineT:
        """The loaded engine. Raises NotReadyError."""
        if self._engine is None:
            raise NotReadyError(f"{self.name} is not ready: {self._why_not}")
        return self._engine

    def refuse_early(self) -> None:
        """Raise NotReadyError or BusyError where a request would be refused once its body has been read."""
        _ = self.engine
        if self._inside > self.options.queue:
            raise BusyError(f"{self.name} has {self._inside - 1} requests waiting, and takes no more for now")

    async def infer(self, request: Request, kind: str, work: Callable[[EngineT, Cancel], T]) -> T:
        """Run `work` when its turn comes. Where the caller goes away it is told so, and not begun if still waiting."""
        self.refuse_early()
        engine, cancel = self.engine, Cancel()

        def run() -> T:
            cancel.check()
            with self._card.request(kind):
                return work(engine, cancel)

        self._inside += 1
        self._running.add(cancel)
        watch = asyncio.create_task(_cancel_when_gone(request, cancel))
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, run)
        finally:
            self._inside -= 1
            self._running.discard(cancel)
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch

    def give_up(self) -> None:
        """Tell every inference, running or waiting, that it is not wanted any more."""
        for cancel in tuple(self._running):
            cancel.set()

    def health(self) -> tuple[int, dict[str, Any]]:
        """Status and body of /healthz."""
        about: dict[str, Any] = {"status": "loading", "service": self.name, "started_at": self.started_at}
        engine = self._engine
        if engine is None:
            return 503, about if self._why_not == "loading" else about | {
                "status": "no_weights",
                "error": self._why_not,
            }
        return 200, about | {
            "status": "ok",
            "model": engine.model,
            "device": engine.device(),
            "engine": engine.versions(),
        }


async def _cancel_when_gone(request: Request, cancel: Cancel) -> None:
    while not await request.is_disconnected():  # noqa: ASYNC110 - a connection's end can be asked for, not waited for
        await asyncio.sleep(_LOOK_SECONDS)
    cancel.set()
