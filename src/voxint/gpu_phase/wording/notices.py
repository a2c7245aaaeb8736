"""PURE: the banner over the pages, and the alerts. One list for the console, the progress strip and the notifier."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from voxint.gpu_phase.model import Phase
from voxint.gpu_phase.reasons import clean
from voxint.gpu_phase.wording import figures, phases

if TYPE_CHECKING:
    from datetime import tzinfo

    from voxint.gpu_phase.view import PhaseView


class Level(StrEnum):
    """How loud a notice is."""

    NOTE = "note"
    WARN = "warn"
    ALERT = "alert"


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence or two over a page. `code` names the kind, for tests, styles and the notifier."""

    level: Level
    code: str
    text: str


_SWITCHING = {
    Phase.DRAINING_POST: "The GPU goes to the recordings as soon as the language model's work in progress has finished.",
    Phase.ACQUIRING: "The GPU is changing hands: the language model is stopping.",
    Phase.STARTING_SERVICES: "The GPU is changing hands: the model services are starting.",
    Phase.DRAINING: "The GPU goes back to the language model as soon as the recordings in progress have finished.",
    Phase.STOPPING_SERVICES: "The GPU is changing hands: the model services are stopping.",
    Phase.RELEASING: "The GPU is changing hands: the language model is starting.",
}


def notices(view: PhaseView, zone: tzinfo | None) -> tuple[Notice, ...]:
    """What stands over the pages now, the loudest first. `zone` None is the machine's own."""
    if not view.enabled:
        return (Notice(Level.ALERT, "leftover", figures.sentence(phases.leftover(view))),) if view.leftover else ()
    found = [*_alerts(view, zone)]
    if view.state is not None and not view.silent:
        found += _of_phase(view, zone)
    return tuple(found)


def _alerts(view: PhaseView, zone: tzinfo | None) -> list[Notice]:
    found = []
    state = view.state
    if state is None:
        text = f"No phase is recorded yet: the GPU sharing task has not run. {_queued(view)}".strip()
        return [Notice(Level.WARN, "no_phase", text)]
    if view.silent:
        text = (
            f"{figures.sentence(phases.not_run_since(view, zone))} Nothing changes hands until it runs. {_queued(view)}"
        )
        found.append(Notice(Level.ALERT, "task_stopped", text.strip()))
    if view.hand_back_failed or state.phase is Phase.ERROR:
        text = f"{figures.sentence(phases.error_words(view, zone))} Language-model work is paused."
        found.append(Notice(Level.ALERT, "error", text))
    if view.llm_overdue and not view.silent:
        found.append(Notice(Level.ALERT, "llm_overdue", figures.sentence(phases.llm_overdue(view))))
    return found


def _of_phase(view: PhaseView, zone: tzinfo | None) -> list[Notice]:
    state = view.state
    if state is None or state.phase is Phase.ERROR:
        return []
    found = []
    waiting = view.gpu_lane.waiting
    if view.blind is not None:
        found.append(Notice(Level.WARN, "blind", figures.sentence(phases.no_switch(view))))
    if view.paused and waiting:
        text = f"The queue is paused. {figures.count(waiting, 'recording')} {figures.are(waiting)} queued."
        found.append(Notice(Level.NOTE, "paused", text))
    elif state.phase is Phase.LLM and waiting:
        found.append(Notice(Level.NOTE, "waiting_for_gpu", _waiting_for_gpu(view, zone)))
    if state.phase in _SWITCHING:
        queued = "" if view.paused else _queued(view)
        found.append(Notice(Level.NOTE, "switching", f"{_SWITCHING[state.phase]} {queued}".strip()))
    if view.post_lane.waiting and not view.post_lane.open and not view.llm_overdue:
        text = _waiting_for_llm(view)
        if text:
            found.append(Notice(Level.NOTE, "waiting_for_llm", text))
    return found


def _waiting_for_gpu(view: PhaseView, zone: tzinfo | None) -> str:
    number = view.gpu_lane.waiting
    text = (
        f"Waiting for the GPU. {figures.count(number, 'recording')} {figures.are(number)} queued;"
        " the GPU is serving the language model until the next audio window."
    )
    state = view.state
    if state is not None and state.failures and state.last_error:
        text += f" The last switch failed: {figures.sentence(clean(state.last_error))}"
        following = view.next_try
        if following is not None and following.at > view.now and view.blind is None:
            text += f" Next try at {figures.clock(following.at, view.now, zone)}."
    elif view.held and view.hold_until is not None:
        text += f" An operator holds switches off until {figures.clock(view.hold_until, view.now, zone)}."
    elif (opens_at := view.waits_for_window) is not None:
        text += (
            f" It begins at {figures.clock(opens_at, view.now, zone)}: the hours for audio are {view.policy.windows}."
        )
    return text


def _waiting_for_llm(view: PhaseView) -> str:
    """Work waits for the language model: in its own phase with the endpoint that does not answer, else briefly."""
    state, number = view.state, view.post_lane.waiting
    if state is None:
        return ""
    head = (
        f"Waiting for the language model. {figures.count(number, 'language-model job')} {figures.are(number)} queued;"
    )
    if state.phase is Phase.AUDIO:
        return f"{head} the GPU is serving recordings until this audio window ends."
    if state.phase is not Phase.LLM:
        return ""
    if not state.note:
        return f"{head} Voxint is about to ask whether it answers."
    return f"{head} {figures.phrase(state.note)}. Bring it back, or take it out of the settings."


def _queued(view: PhaseView) -> str:
    number = view.gpu_lane.waiting
    return f"{figures.count(number, 'recording')} {figures.are(number)} queued." if number else ""
