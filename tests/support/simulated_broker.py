"""The broker's engine with a made-up card and service, in this process: quick, and every failure can be had."""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING
from unittest.mock import patch

from voxint_broker import engine
from voxint_broker.config import LeaseRules
from voxint_broker.config_memory import NoMemory, NvmlMemory
from voxint_broker.engine import Broker
from voxint_broker.journal import Journal
from voxint_broker.simulated import Behaviour, SimulatedService
from voxint_broker.switching import Part

if TYPE_CHECKING:
    from pathlib import Path

TTL = timedelta(seconds=600)


class World:
    """A broker over a simulated service, and waiting for what it does."""

    def __init__(self, folder: Path, behaviour: Behaviour | None = None, *, service=None, gauge=None, **rules):
        self.service = service or SimulatedService(behaviour=behaviour or Behaviour())
        limits = {"limit_seconds": rules.pop("memory_limit_seconds", 0.3), "interval_seconds": 0.002}
        programs = rules.pop("lease_programs", None)
        if programs is None:
            memory = NoMemory(kind="none", **limits)
        else:
            memory = NvmlMemory(kind="nvml", need_free_mib=1, lease_programs=programs, **limits)
        quick = {"look_seconds": 0.05, "retry_seconds": 0.2, "give_up_seconds": 60, **rules}
        self.broker = Broker(
            [Part(self.service, None)],
            gauge or self.service,
            memory,
            LeaseRules.model_validate(quick),
            Journal(folder / "state"),
            hook=rules.pop("hook", lambda _point: None),
        )

    def until(self, true, what="", seconds=30.0):
        """Wait for something to become true; it."""
        limit = time.monotonic() + seconds
        while not (value := true()):
            assert time.monotonic() < limit, (what, self.broker.status())
            time.sleep(0.002)
        return value

    def until_phase(self, phase):
        """Wait for a phase; the status then."""
        return self.until(lambda: (now := self.broker.status())["phase"] == phase and now, phase)

    def acquire(self, lease_id=None, holder="voxint", ttl=TTL):
        """An acquire's code and body."""
        reply = self.broker.acquire(holder, ttl, lease_id)
        return reply.status, reply.body

    def release(self, lease_id):
        """A release's code and body."""
        reply = self.broker.release(lease_id)
        return reply.status, reply.body

    def granted(self, **options):
        """Acquire until it is granted; the lease's id."""
        return self.until(lambda: (a := self.acquire(**options))[0] == 200 and a[1]["lease_id"], "a grant")

    def lease_that_runs_out(self, memory_taken):
        """A lease that runs out while somebody has the memory, who has had it before; its id."""
        lease_id = self.granted()
        self.service.behaviour.memory_taken = memory_taken
        assert self.acquire(lease_id, ttl=timedelta(seconds=0.05))[0] == 200
        return lease_id

    def released(self, lease_id):
        """Release until it is done; the last code."""
        return self.until(lambda: (code := self.release(lease_id)[0]) != 202 and code, "a release")


@contextmanager
def running(folder, behaviour=None, **options):
    """A world whose broker runs and whose service is up. It looks at its services oftener than the real one."""
    world = World(folder, behaviour, **options)
    with patch.object(engine, "_TEND_SECONDS", 0.1):
        world.broker.start()
        try:
            yield world
        finally:
            world.broker.stop(stop_services=False)
