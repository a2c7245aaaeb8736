"""The broker itself: it answers at once from its record, and one thread does the work that the record asks for."""

from __future__ import annotations

import logging
import secrets
import threading
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from voxint_broker import calls, clock
from voxint_broker.adapters.protocol import Condition
from voxint_broker.calls import Reply, Wish
from voxint_broker.config_memory import SeenMemory
from voxint_broker.events import Events
from voxint_broker.lookout import Lookout, gone
from voxint_broker.record import JournalError, Record, State, fresh
from voxint_broker.switching import Part, StepFailedError, SupersededError, Switch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from voxint_broker.config import LeaseRules
    from voxint_broker.config_memory import Memory
    from voxint_broker.journal import Journal
    from voxint_broker.memory.reading import Gauge

log = logging.getLogger("voxint_broker")

_TEND_SECONDS = 1.0
_LONGEST_RESTART_DELAY = 60.0
_SETTLED_SECONDS = 60.0


def _no_hook(_point: str) -> None:
    """Between two steps nothing happens, but in the tests that kill the broker there."""


class Broker:
    """One GPU, the services that share it, and at most one lease."""

    def __init__(
        self,
        parts: Sequence[Part],
        gauge: Gauge,
        memory: Memory,
        rules: LeaseRules,
        journal: Journal,
        *,
        events: Events | None = None,
        hook: Callable[[str], None] = _no_hook,
    ) -> None:
        self._parts = tuple(parts)
        self._rules = rules
        self._journal = journal
        self._hook = hook
        self.events = events or Events()
        self._memory = memory
        self._switch = Switch(self._parts, gauge, memory, self)
        self._lookout = Lookout()
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._record = fresh(clock.now())
        self._working_turn = -1
        self._asked = clock.monotonic()
        self._step = ("", "")
        self._retry = False
        self._stirred = False
        self._ending = False
        self._told: set[str] = set()
        self._thread: threading.Thread | None = None
        self._restarts = 0

    # --- life --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take the journal up where it was left, find what runs, and begin to work.

        Raises:
            JournalError: the journal cannot be used.
        """
        self._journal.open()
        stored = self._journal.read()
        with self._lock:
            self._record = stored if stored is not None else self._record
            for part in self._parts:
                part.adapter.adopt(self._record.handles.get(part.adapter.name, {}))
            self._put(replace(self._record, turn=self._record.turn + 1, handles=self._handles()))
        for part in self._parts:
            part.adapter.watch(self._stir)
        log.info("started: %s", self._record.state.value)
        self._thread = threading.Thread(target=self._work, name="broker-work")
        self._thread.start()

    def stop(self, *, stop_services: bool) -> None:
        """End the work. The services go on and are found again, unless they are to be stopped."""
        with self._wake:
            self._ending = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join()
        if stop_services:
            self._ending = False
            self._working_turn = self._record.turn
            for part in reversed(self._parts):
                try:
                    if part.adapter.keep_running:
                        self._switch.stop(part.adapter)
                except (StepFailedError, SupersededError) as error:
                    log.error("%s", error)  # noqa: TRY400 - expected: the text says all
        self.events.close()
        self._journal.close()

    def reconfigure(self, parts: Sequence[Part], gauge: Gauge, memory: Memory, rules: LeaseRules) -> None:
        """Go on with other numbers. A switch that is under way ends with the old ones."""
        with self._wake:
            self._parts = tuple(parts)
            self._rules = rules
            self._memory = memory
            self._switch = Switch(self._parts, gauge, memory, self)
            self._wake.notify_all()

    @property
    def parts(self) -> tuple[Part, ...]:
        """The services."""
        return self._parts

    # --- calls -------------------------------------------------------------------------------------------------

    def acquire(self, holder: str, ttl: timedelta, lease_id: str | None) -> Reply:
        """Answer an acquire or a renewal."""
        ttl = min(ttl, timedelta(seconds=self._rules.max_ttl_seconds))
        wish = Wish(holder, ttl, lease_id, secrets.token_hex(16))
        with self._wake:
            now = self._pass_time()
            reply, after = calls.acquire(self._record, wish, now)
            lease = self._record.lease
            if after is not self._record or (lease is not None and lease.holder == holder):
                self._asked = clock.monotonic()
            return self._answer("acquire", reply, after)

    def release(self, lease_id: str) -> Reply:
        """Answer a release."""
        with self._wake:
            now = self._pass_time()
            runs = self._all_run() if self._record.state is State.FREE else None
            if self._record.state is State.ERROR:
                self._retry = True
                if self._working_turn == self._record.turn and self._step[0]:
                    trying = Reply(202, {"state": "pending", "phase": State.ERROR.value, "detail": self._step[1]})
                    return self._answer("release", trying, self._record)
            reply, after = calls.release(self._record, lease_id, now, runs=runs)
            return self._answer("release", reply, after)

    def status(self) -> dict[str, Any]:
        """Who holds the GPU, and what is being done."""
        with self._wake:
            now = self._pass_time()
            step, detail = self._step
            status = calls.status(self._record, now)
            services = self._lookout.services(self._parts)
            reading = self._switch.last
            if self._record.state is State.FREE:
                status["reason"] = self._lookout.down(self._parts) or status["reason"]
            return {
                **status,
                "step": step or None,
                "detail": detail or None,
                "services": services,
                "free_mib": reading.free_mib if reading is not None else None,
                "foreign": [holder.words for holder in self._lookout.foreign],
            }

    def problem(self) -> str | None:
        """Why the broker cannot do its work, or the services do not do theirs though nobody holds the GPU."""
        status = self.status()
        with self._wake:
            if self._record.state is State.ERROR:
                return status["reason"] or "a step failed"
            if self._record.state is State.FREE:
                return self._lookout.down(self._parts)
        return None

    def _answer(self, call: str, reply: Reply, after: Record) -> Reply:
        self.events.answered(call, reply.status)
        try:
            if after is not self._record:
                self._put(after)
        except JournalError as error:
            log.error("%s", error)  # noqa: TRY400 - expected: the text says all
            return Reply(500, {"error": str(error), "code": "journal_failed"})
        self._wake.notify_all()
        return reply

    def _pass_time(self) -> datetime:
        now = clock.now()
        after = calls.after_time(self._record, now)
        if after is not self._record:
            self._put_if_possible(after)
        return now

    # --- the record --------------------------------------------------------------------------------------------

    def _put(self, record: Record) -> None:
        before = self._record
        self._journal.write(record)
        self._record = record
        if record.state is not before.state:
            self._step = ("", "")
            self._told.clear()
            if before.state is State.HELD:
                self._lookout.lease_ended()
            self.events.moved(before, record)
            log.info(
                "%s -> %s%s", before.state.value, record.state.value, f": {record.reason}" if record.reason else ""
            )

    def _put_if_possible(self, record: Record) -> None:
        try:
            self._put(record)
        except JournalError as error:
            self._tell(str(error))

    def _move(self, state: State, **changes: Any) -> None:  # noqa: ANN401 - fields of Record
        """Another state, if the work that asks for it is still wanted."""
        with self._wake:
            self.check()
            self._put(self._record.moved(state, clock.now(), **changes))
            self._wake.notify_all()

    def _handles(self) -> dict[str, dict[str, Any]]:
        return {part.adapter.name: handle for part in self._parts if (handle := part.adapter.handle())}

    # --- what the switch needs (its Watch) ---------------------------------------------------------------------

    def check(self) -> None:
        """Raise SupersededError when the work is no longer wanted."""
        with self._lock:
            if self._record.turn == self._working_turn and self._forgotten():
                record = self._record
                self._put(calls.given_up(record, clock.now(), "nobody asked for the lease any more: given up"))
            if self._ending or self._record.turn != self._working_turn:
                raise SupersededError

    def pause(self, seconds: float) -> None:
        """Wait until the record changes, or the time is over."""
        with self._wake:
            self._wake.wait_for(lambda: self._ending or self._record.turn != self._working_turn, seconds)

    def _stir(self) -> None:
        """Something about a service may have changed: look at once, where nothing is switched."""
        with self._wake:
            self._stirred = True
            self._wake.notify_all()

    def say(self, step: str, detail: str = "") -> None:
        """Keep what is being done for the status."""
        self._step = (step, detail)

    def started(self) -> None:
        """Write what finds the started service again."""
        with self._lock:
            self._put(replace(self._record, handles=self._handles()))

    def point(self, name: str) -> None:
        """Call the hook of the tests."""
        self._hook(name)

    # --- the work ----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._ending:
            with self._lock:
                self._working_turn = self._record.turn
                state = self._record.state
            try:
                self._WORK[state](self)
            except SupersededError:
                continue
            except JournalError as error:
                self._tell(str(error))
                self.pause(1.0)
            except Exception:  # a mistake of ours must not end the thread that brings services back
                log.exception("the work in state %s broke off", state.value)
                self.pause(1.0)

    def _work_acquiring(self) -> None:
        try:
            self._switch.clear()
        except StepFailedError as error:
            dirty = self._record.granted_before
            self._move(State.RELEASING, lease=None, failed_acquire=str(error), reason=str(error), granted_before=dirty)
            return
        self._hook("before grant")
        with self._lock:
            lease = self._record.lease
        if lease is None:
            self._move(State.RELEASING)
            return
        self._lookout.lease_began(self._switch.last)
        now = clock.now()
        self._move(
            State.HELD,
            lease=replace(lease, granted_at=now, expires_at=now + lease.ttl),
            granted_before=True,
            failed_acquire=None,
        )
        self._hook("after grant")

    def _work_held(self) -> None:
        """Keep the door shut until the lease ends."""
        for part in self._parts:
            if self._lookout.look(part.adapter).condition is Condition.RUNNING:
                self._tell(f"{part.adapter.name} runs although the GPU is leased: stopping it again")
                try:
                    self._switch.stop(part.adapter)
                except StepFailedError as error:
                    self._tell(str(error))
                else:
                    self._stopped_again(part.adapter.name)
        if isinstance(self._memory, SeenMemory):  # a lock would have to be taken for it, and be in the holder's way
            for holder in self._lookout.see(self._switch.read(), self._memory.lease_programs):
                self._say_once(f"process {holder.pid} ({holder.name}) uses the GPU's memory beside the lease")
        self._rest(self._rules.look_seconds)

    def _stopped_again(self, name: str) -> None:
        """What the status said of it is over; that it happened stays to be seen until the lease ends."""
        at = clock.now().isoformat(timespec="seconds").replace("+00:00", "Z")
        with self._lock:
            self.check()
            self._record = replace(self._record, reason=f"{name} ran although the GPU is leased: stopped again at {at}")

    def _work_releasing(self) -> None:
        must_be_free = self._record.granted_before
        try:
            self._switch.restore(must_be_free=must_be_free)
        except StepFailedError as error:
            self._move(State.ERROR, reason=str(error))
            return
        self._restored()

    def _restored(self) -> None:
        lease = self._record.lease
        released = lease.id if lease is not None else self._record.last_released
        self._move(State.FREE, lease=None, last_released=released, granted_before=False)

    def _work_expired(self) -> None:
        free, detail = self._switch.is_free()
        lease = self._record.lease
        if free:
            released = lease.id if lease is not None else self._record.last_released
            self._move(State.RELEASING, lease=None, last_released=released, reason="the lease ran out")
            return
        self._tell(
            "the lease ran out, but the GPU's memory is not free, so the services stay stopped: "
            f"{detail}. End what still uses the GPU"
        )
        self._rest(self._rules.look_seconds)

    def _work_error(self) -> None:
        if self._record.reason:
            self._tell(self._record.reason)
        with self._wake:
            self._step = ("", "")
            self._wake.wait_for(
                lambda: self._ending or self._retry or self._record.turn != self._working_turn,
                self._rules.retry_seconds,
            )
            self._retry = False
        self.check()
        self.say("try again", "")
        try:
            self._switch.restore(must_be_free=self._record.granted_before)
        except StepFailedError as error:
            with self._lock:
                self.check()
                self._put(replace(self._record, reason=str(error)))
            return
        self._restored()

    def _work_free(self) -> None:
        """See that the services run; start those again that are the broker's to start."""
        looks = [(part.adapter, self._lookout.look(part.adapter)) for part in self._parts]
        ended = [adapter for adapter, look in looks if adapter.keep_running and gone(look)]
        if not ended:
            if (down := self._lookout.down(self._parts)) is not None:
                self._say_once(down)
            if (clock.now() - self._record.since).total_seconds() > _SETTLED_SECONDS:
                self._restarts = 0
            quick = all(adapter.quick for adapter, _ in looks)
            self._rest(_TEND_SECONDS if quick else max(_TEND_SECONDS, self._rules.look_seconds))
            return
        self._restarts += 1
        words = "; ".join(f"{adapter.name} ended ({adapter.last_words() or 'nobody knows how'})" for adapter in ended)
        self._tell(words)
        if self._restarts > 1:
            self._rest(min(2.0 ** min(self._restarts, 10), _LONGEST_RESTART_DELAY), stirring=False)
            self.check()
        self._move(State.RELEASING, reason=words, granted_before=False)

    _WORK: ClassVar[dict[State, Callable[[Broker], None]]] = {
        State.FREE: _work_free,
        State.ACQUIRING: _work_acquiring,
        State.HELD: _work_held,
        State.RELEASING: _work_releasing,
        State.EXPIRED: _work_expired,
        State.ERROR: _work_error,
    }

    # --- parts -------------------------------------------------------------------------------------------------

    def _rest(self, seconds: float, *, stirring: bool = True) -> None:
        """Wait, and let the clock decide what it decides: an expiry, a request that nobody repeats.

        Args:
            seconds: the longest wait.
            stirring: whether news of a service end it.
        """
        deadline = clock.monotonic() + seconds
        while (left := deadline - clock.monotonic()) > 0:
            with self._wake:
                now = self._pass_time()
                self.check()
                due = self._record.lease.expires_at if self._record.lease is not None else None
                until = (due - now).total_seconds() if due is not None and self._record.state is State.HELD else left
                self._wake.wait_for(
                    lambda: self._ending or self._record.turn != self._working_turn or (stirring and self._stirred),
                    max(min(left, until), 0.001),
                )
                if stirring and self._stirred:
                    self._stirred = False
                    return
            self.check()

    def _forgotten(self) -> bool:
        """Whether a lease was asked for, and its holder never came back to hear of it."""
        lease = self._record.lease
        if lease is None or clock.monotonic() - self._asked < self._rules.give_up_seconds:
            return False
        return self._record.state is State.ACQUIRING or (self._record.state is State.HELD and not lease.fetched)

    def _all_run(self) -> bool | None:
        looks = [part.adapter.look() for part in self._parts]
        if any(gone(look) for look in looks):
            return False
        return None if any(look.condition is Condition.UNKNOWN for look in looks) else True

    def _say_once(self, text: str) -> None:
        """Say a thing once in a state, in the log and to whoever is notified."""
        if text not in self._told:
            self._told.add(text)
            log.warning("%s", text)
            self.events.told(text, self._record.state.value)

    def _tell(self, text: str) -> None:
        """Say a thing once in a state, in the log and in the status."""
        self._say_once(text)
        with self._lock:
            self._record = replace(self._record, reason=text)
