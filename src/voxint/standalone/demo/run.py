"""The demo from beginning to end."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from voxint.gpu_phase.model import Phase
from voxint.recordings.errors import NotAddedError
from voxint.settings import load_settings
from voxint.standalone.demo import items as remembered
from voxint.standalone.demo import known_words, verdict
from voxint.standalone.demo.items import DemoError, Item, State
from voxint.standalone.demo.outcome import Outcome, gather, tell
from voxint.standalone.demo.session import Session
from voxint.standalone.demo.timeline import hands
from voxint.standalone.demo.view import Picture, View, printable
from voxint.standalone.environment import read
from voxint.standalone.home import Home
from voxint.standalone.postgres import EmbeddedPostgres
from voxint.standalone.waiting import wait_for
from voxint.wiring import make

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from voxint.wiring import Parts

SETTINGS = {"GPU_PHASE_TICK_SECONDS": "5", "GPU_PHASE_MIN_DWELL_SECONDS": "0"}
"""A demo need not wait. By default they are 30 and 600."""
STILL_SECONDS = 900.0
"""A demo in which nothing has changed for so long has failed."""
_LOOK_SECONDS = 0.4
_ENDED = {"done", "failed", "cancelled"}


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for: the recordings (none: the samples), where the output goes, and whether to do it anew."""

    audio: Sequence[Path]
    into: Path
    again: bool = False
    stand_ins: bool = False


def run_demo(wish: Wish, environ: Mapping[str, str], console: Console) -> int:
    """Run the demo; gives the exit status: 0 only if everything that it shows is as it should be.

    Raises:
        DemoError: it could not be brought to its end.
        HomeError: its data folder cannot be used.
    """
    began = time.monotonic()
    home = Home(wish.into.absolute() / "data")
    home.make()
    found = remembered.items(wish.audio or remembered.samples())
    _head(wish, found, home, console)
    state_file = home.folder / "demo.json"
    state = remembered.load(state_file)
    code = remembered.code_fingerprint() + (" stand-ins" if wish.stand_ins else "")
    if state is not None and (wish.again or state.code != code or {item.sha256 for item in found} != set(state.runs)):
        state = None
    if state is not None and state.done_at is not None:
        outcome = _look_again(home, found, state, wish.into)
        again = f" (made {state.done_at:%Y-%m-%d %H:%M} UTC, shown again in {time.monotonic() - began:.0f} s)"
        console.print(
            "These recordings were done by an earlier call with the same code. AGAIN=1 or --again does them anew."
        )
    else:
        with Session(home, {**environ, **SETTINGS}, stand_ins=wish.stand_ins) as session:
            parts = session.up()
            state = _added(parts, found, state, code)
            remembered.save(state_file, state)
            _Watch(parts, session, found, state).to_the_end(View(console, began))
            state = replace(state, done_at=parts.phase_store.now(), seconds=time.monotonic() - began)
            outcome = gather(parts, home, found, state, wish.into)
        if all(one.run.status == "done" for one in outcome.recorded):
            remembered.save(state_file, state)
        again = ""
    tell(outcome, wish.into, console)
    return _judge(wish, outcome, state, again, console)


def _head(wish: Wish, found: Sequence[Item], home: Home, console: Console) -> None:
    settings = " ".join(f"{name}={value}" for name, value in SETTINGS.items())
    names = ", ".join(printable(item.name) for item in found)
    console.print(f"demo: {len(found)} recordings: {names}")
    console.print(f"demo: settings {settings} (30 and 600 by default: a demo need not wait)")
    console.print("demo: there is no GPU here: COMPUTE_TIER=simulated, and a lock stands for the card")
    models = "stand-ins in place of all models" if wish.stand_ins else "small real models on the processor"
    console.print(f"demo: {models}; data in {home.folder}")


def _added(parts: Parts, found: Sequence[Item], state: State | None, code: str) -> State:
    """The recordings in the queue, each once; all of them before the GPU is asked for."""
    begun_at = parts.phase_store.now()
    runs = dict(state.runs) if state is not None else {}
    for item in found:
        if item.sha256 in runs:
            continue
        try:
            runs[item.sha256] = parts.run_store.add(item.path, title=item.name).id
        except NotAddedError as error:
            raise DemoError(str(error)) from error
    parts.publisher.wake_phase()
    return state or State(code, begun_at, runs)


class _Watch:
    """Shows how it goes until every recording has ended and the language model has the GPU again."""

    def __init__(self, parts: Parts, session: Session, found: Sequence[Item], state: State) -> None:
        self._parts, self._session, self._found, self._state = parts, session, found, state
        self._last: object = None
        self._changed = time.monotonic()

    def to_the_end(self, view: View) -> None:
        """Look and show, again and again.

        Raises:
            DemoError: Voxint ended, or nothing changes any more.
        """
        with view:
            wait_for(lambda: self._ended(view), float("inf"), every_seconds=_LOOK_SECONDS)

    def _ended(self, view: View) -> bool:
        self._session.check()
        try:
            picture = _picture(self._parts, self._found, self._state)
        except SQLAlchemyError:  # the database is being started again
            return False
        view.show(picture)
        now = (picture.phase, [(run.status, run.stage, run.progress) for _, run in picture.runs])
        if now != self._last:
            self._last, self._changed = now, time.monotonic()
        if time.monotonic() - self._changed > STILL_SECONDS:
            raise DemoError(f"nothing has changed for {STILL_SECONDS:g} s: see the logs")
        return picture.phase is Phase.LLM and all(run.status in _ENDED for _, run in picture.runs)


def _picture(parts: Parts, found: Sequence[Item], state: State) -> Picture:
    stored = parts.phase_store.read()
    runs = []
    for item in found:
        run = parts.run_store.get(state.runs[item.sha256])
        if run is None:
            raise DemoError(f"the recording {item.name} is gone from the database")
        runs.append((item.name, run))
    if stored is None:
        return Picture(None, 0, runs)
    age = (parts.phase_store.now() - stored.state.phase_since).total_seconds()
    return Picture(stored.state.phase, age, runs)


def _look_again(home: Home, found: Sequence[Item], state: State, into: Path) -> Outcome:
    """What an earlier call left: only its database is started."""
    with home.sole_use():
        server = EmbeddedPostgres(home.postgres, home.logs / "postgres.log")
        server.start()
        try:
            parts = make(load_settings(read(home)))
            try:
                return gather(parts, home, found, state, into)
            finally:
                parts.close()
        finally:
            server.stop()


def _judge(wish: Wish, outcome: Outcome, state: State, again: str, console: Console) -> int:
    """Read the known words of the samples, print the verdict and the last line."""
    understood = [] if wish.audio or wish.stand_ins else _understood(outcome)
    facts = verdict.Facts(
        recordings=len(outcome.recorded),
        not_done=[f"{r.item.name}: {r.run.error or r.run.status}" for r in outcome.recorded if r.run.status != "done"],
        hands=hands(outcome.phases),
        faults=outcome.faults,
        seconds=state.seconds,
        word_error_rate=known_words.word_error_rate(understood) if understood else None,
        right_speakers=sum(one.right_number for one in understood) if understood else None,
        again=again,
    )
    if understood:
        console.print("\nBeside the known words, which nothing before this line has read:")
    for one in understood:
        rate = verdict.percent(known_words.word_error_rate([one]))
        console.print(f"  {printable(one.name):12} WER {rate:>7}, {one.speakers} of {one.known.speakers} speakers")
    problems = verdict.problems(facts)
    console.print()
    for problem in problems:
        console.print(f"demo: not as it should be: {printable(problem)}")
    console.print(verdict.last_line(facts))
    return 1 if problems else 0


def _understood(outcome: Outcome) -> list[known_words.Understood]:
    pairs = [(one, known_words.read(one.item.path)) for one in outcome.recorded if one.transcript is not None]
    return [known_words.Understood(one.item.name, known, one.text, one.speakers) for one, known in pairs if known]
