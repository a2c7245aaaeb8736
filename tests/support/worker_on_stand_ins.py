"""A worker as a process, whose stages do what the recording's title says. For tests of the queue, not of the stages.

Titles are words: `sleep 3`, `exit`, `not-now`, `fail`, `raise`; anything else is done at once. `stage=transcribe` limits
the behaviour to that stage. Every stage that is carried out appends a line to STAGE_LOG.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta

from sqlalchemy import text

from voxint.recordings.errors import ClaimLost, NotNow, StageFailed
from voxint.settings import load_settings
from voxint.wiring import Parts
from voxint.work import tasks
from voxint.work.names import TICK_QUEUE, TICK_TASK
from voxint.work.processes import run_beat, run_worker
from voxint.work.publish import Publisher


def work(self, claim, heart):
    with self.engine.begin() as connection:
        title = connection.execute(text("SELECT title FROM run WHERE id = :id"), {"id": claim.run_id}).scalar_one()
    note("start", claim)
    words = dict(word.partition("=")[::2] for word in title.split() if "=" in word)
    plain = [word for word in title.split() if "=" not in word]
    if words.get("stage", claim.kind) == claim.kind and plain:
        behave(plain, heart)
    note("end", claim)
    return {"stage": claim.kind, "token": claim.token}


def behave(plain, heart):
    match plain:
        case ["sleep", seconds]:
            end = time.monotonic() + float(seconds)
            while time.monotonic() < end:
                if heart.lost.wait(0.05):
                    raise ClaimLost
        case ["deaf", seconds]:  # does not look at its claim, as a call in C may not
            time.sleep(float(seconds))
        case ["exit"]:
            os._exit(137)
        case ["not-now"]:
            raise NotNow("whisper: connection refused", retry_in=timedelta(seconds=1))
        case ["fail"]:
            raise StageFailed("no audio track")
        case ["raise"]:
            raise RuntimeError("connection closed in the middle of the answer")


def note(what, claim):
    with open(os.environ["STAGE_LOG"], "a", encoding="utf-8") as file:  # noqa: PTH123 - one write, one line
        file.write(f"{what} {claim.run_id} {claim.kind} {claim.attempt} {os.getpid()}\n")


def without_tokens():
    """What a twin does: every wake-up is sent, and every one that arrives is answered."""
    Publisher.wake_phase = lambda self, after=timedelta(0), *, quiet=0: self._send(
        TICK_TASK, {"token": "any", "quiet": quiet}, TICK_QUEUE, countdown=after.total_seconds()
    )
    Publisher.take_phase_wake = lambda *_: True


class UsedBeforeTheFork(tasks._PerProcess):
    """Its parent's connection is open, and in the pool, when the children are made."""

    def __init__(self, settings):
        super().__init__(settings)
        with self.get().engine.begin() as connection:
            connection.execute(text("SELECT 1"))
        print("used before the fork", flush=True)


if __name__ == "__main__":
    settings = load_settings()
    Parts.work = work
    if os.environ.get("WITHOUT_TOKENS"):
        without_tokens()
    if os.environ.get("USED_BEFORE_THE_FORK"):
        tasks._PerProcess = UsedBeforeTheFork
    if sys.argv[1] == "beat":
        sys.exit(run_beat(settings))
    sys.exit(run_worker(settings, gpu_phase=sys.argv[1] == "gpu-phase", concurrency=int(sys.argv[2])))
