"""When the queue will be worked off: from what past turns and recordings took, and from when the GPU comes next."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING

from sqlalchemy import text

from voxint.gpu_phase.model import Phase
from voxint.gpu_phase.wording import figures

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, tzinfo

    from sqlalchemy import Engine

    from voxint.gpu_phase.store import Event
    from voxint.gpu_phase.view import PhaseView

UNKNOWN = "unknown"
LOOK_BACK = timedelta(days=30)
_RECENT_RUNS = 40
_GONE = {Phase.LLM, Phase.DRAINING_POST, Phase.ACQUIRING, Phase.STARTING_SERVICES}


@dataclass(frozen=True, slots=True)
class Habits:
    """What past turns and recordings took, in seconds; the middle of each."""

    there: float
    """From leaving `llm` to `audio`."""
    back: float
    """From leaving `audio` to `llm`."""
    gpu: float
    """A recording's GPU stages together."""
    post: float
    """Its stages that need the language model."""


def habits(events: Sequence[Event], took: Sequence[tuple[float, float]]) -> Habits | None:
    """What is usual; None without a past audio window, or without a recording that is done.

    Args:
        events: changes of phase, oldest first.
        took: for recordings that are done, the seconds of their GPU stages and of the others.
    """
    there, back = turns(events)
    if not there or not took:
        return None
    gpu, post = (median(each[side] for each in took) for side in (0, 1))
    return Habits(median(there), median(back) if back else median(there), gpu, post)


def without_turns(took: Sequence[tuple[float, float]]) -> Habits | None:
    """What is usual where the GPU never changes hands."""
    if not took:
        return None
    gpu, post = (median(each[side] for each in took) for side in (0, 1))
    return Habits(0.0, 0.0, gpu, post)


def turns(events: Sequence[Event]) -> tuple[list[float], list[float]]:
    """How long each way to `audio` took, and each way back."""
    there: list[float] = []
    back: list[float] = []
    left: datetime | None = None
    for event in events:
        before, after = event.from_phase, event.to_phase
        if before in {Phase.LLM, Phase.AUDIO}:
            left = event.at
        if after is Phase.AUDIO and left is not None and before is Phase.STARTING_SERVICES:
            there.append((event.at - left).total_seconds())
        elif after is Phase.LLM and left is not None and before is Phase.RELEASING:
            back.append((event.at - left).total_seconds())
    return there, back


def queue_done_at(view: PhaseView, usual: Habits | None) -> datetime | None:
    """When all that is queued now will be done, if it goes on as usual; None where nobody can tell."""
    if usual is None or view.paused or (view.enabled and (not view.task_running or view.phase is Phase.ERROR)):
        return None
    gpu = view.gpu_lane.waiting + view.gpu_lane.running
    post = view.post_lane.waiting + view.post_lane.running
    work = gpu * usual.gpu
    seconds = (gpu + post) * usual.post
    if not view.enabled:
        return view.now + timedelta(seconds=work + seconds)
    if gpu:
        longest = max(view.policy.max_audio.total_seconds(), usual.gpu, 1.0)
        windows = max(math.ceil(work / longest), 1)
        between = usual.back + view.policy.min_dwell.total_seconds() + usual.there
        seconds += _until_audio(view, usual) + work + (windows - 1) * between + usual.back
    elif view.phase is not Phase.LLM:
        seconds += usual.back
    return view.now + timedelta(seconds=seconds)


def _until_audio(view: PhaseView, usual: Habits) -> float:
    following = view.next_try
    if view.phase is Phase.AUDIO:
        return 0.0
    if view.phase is Phase.LLM and following is not None:
        return max((following.at - view.now).total_seconds(), 0.0) + usual.there
    if view.phase in _GONE:
        return usual.there
    return usual.back + view.policy.min_dwell.total_seconds() + usual.there


def words(view: PhaseView, usual: Habits | None, zone: tzinfo | None) -> str:
    """`about 21:40; 6 queued`, or `unknown; 6 queued`; empty with nothing queued."""
    queued = view.gpu_lane.waiting + view.post_lane.waiting
    if not queued and not view.gpu_lane.running and not view.post_lane.running:
        return ""
    at = queue_done_at(view, usual)
    if at is None:
        return f"{UNKNOWN}; {queued:,} queued"
    there, here = at.astimezone(zone), view.now.astimezone(zone)
    day = "" if there.date() == here.date() else f" on {there:%Y-%m-%d}"
    return f"about {there:%H:%M}{day}; {queued:,} queued"


def next_switch(view: PhaseView, zone: tzinfo | None) -> str:
    """When the GPU changes hands next, in a few words."""
    if not view.enabled or view.state is None:
        return ""
    if view.phase is Phase.LLM:
        if view.request is not None:
            return "as soon as the phase task looks"
        if not view.switch_wanted:
            return "once a recording is queued" if not view.paused else "once the queue goes on"
        following = view.next_try
        if following is None or following.at <= view.now:
            return "now due"
        return f"at {figures.clock(following.at, view.now, zone)} at the earliest ({following.binds})"
    if view.phase is Phase.AUDIO:
        latest = view.state.phase_since + view.policy.max_audio
        return f"once the queue is empty, at {figures.clock(latest, view.now, zone)} at the latest"
    if view.phase is Phase.ERROR:
        following = view.next_try
        return f"tried again at {figures.clock(following.at, view.now, zone)}" if following else ""
    return "under way"


def recent(engine: Engine) -> list[tuple[float, float]]:
    """For the newest recordings that are done: the seconds of their GPU stages and of the others."""
    query = """
        SELECT coalesce(sum(extract(epoch FROM ended_at - started_at)) FILTER (WHERE item.lane = 'gpu'), 0) AS gpu,
               coalesce(sum(extract(epoch FROM ended_at - started_at)) FILTER (WHERE item.lane = 'post'), 0) AS post
        FROM (SELECT id FROM run WHERE status = 'done' AND finished_at IS NOT NULL
              ORDER BY finished_at DESC LIMIT :most) newest
        JOIN stage_execution execution ON execution.run_id = newest.id AND execution.outcome = 'done'
        JOIN work_item item ON item.id = execution.work_item_id
        WHERE item.kind IN ('acquire', 'prepare', 'transcribe', 'diarize_embed', 'enhance_match', 'finalize')
        GROUP BY newest.id
    """
    with engine.connect() as connection:
        rows = connection.execute(text(query), {"most": _RECENT_RUNS}).all()
    return [(float(row.gpu), float(row.post)) for row in rows]
