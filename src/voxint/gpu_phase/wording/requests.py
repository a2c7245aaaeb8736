"""PURE: what happens next after an operator's request, in the phase that it was made in, and when."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from voxint.gpu_phase.decide import later
from voxint.gpu_phase.model import Phase, RequestKind
from voxint.gpu_phase.wording import figures, phases

if TYPE_CHECKING:
    from datetime import tzinfo

    from voxint.gpu_phase.view import PhaseView

_OFF = "GPU sharing is off (GPU_PHASE_ENABLED=false): nothing was changed"


def off_words(view: PhaseView) -> str:
    """Why a request is refused, and on a line of its own what is left of the time when sharing was on."""
    return f"{_OFF}\n{phases.leftover(view)}" if view.leftover else _OFF


def next_step(kind: RequestKind, view: PhaseView, zone: tzinfo | None, *, woken: bool) -> list[str]:
    """Sentences for the operator, the first one on what happens.

    Args:
        kind: what was asked for.
        view: how things stood when it was recorded.
        zone: the zone that moments are shown in; None is the machine's own.
        woken: whether an extra tick has been asked for, so that the request is seen at once.
    """
    if view.state is None:
        first = (
            f"{phases.NO_PHASE_YET.capitalize()}: the request waits for the first run of the GPU sharing task, and is"
            " acted on by the tick after it."
        )
        return [first, *_nothing_to_do(kind, view)]
    texts = _AUDIO_NOW if kind is RequestKind.AUDIO_NOW else _RELEASE
    soon = "at once" if woken and not view.silent else f"at the next tick, within {figures.span(view.policy.tick)}"
    said = [_filled(texts[view.state.phase], view, zone, soon)]
    if kind is RequestKind.AUDIO_NOW:
        said += _overrides(view, zone)
        if view.blind is not None:
            said.append(f"But {phases.no_switch(view)}.")
    said += _nothing_to_do(kind, view)
    if view.silent:
        said.append(f"But {phases.not_run_since(view, zone)}: the request waits until it runs again.")
    return said


_KEPT = "The request is kept, and acted on at the next tick in llm."

_AUDIO_NOW = {
    Phase.LLM: "The switch to audio begins {soon}: language-model work in progress ({post}) finishes first, then the"
    " broker frees the GPU and the model services start.",
    Phase.DRAINING_POST: "The switch to audio is under way: it waits for language-model work in progress ({post}).",
    Phase.ACQUIRING: "The switch to audio is under way: the broker is freeing the GPU.",
    Phase.STARTING_SERVICES: "The switch to audio is under way: the model services are starting.",
    Phase.AUDIO: "Voxint has the GPU already: there is nothing to do.",
    Phase.DRAINING: f"The GPU is going back to the language model. {_KEPT}",
    Phase.STOPPING_SERVICES: f"The GPU is going back to the language model. {_KEPT}",
    Phase.RELEASING: f"The GPU is going back to the language model. {_KEPT}",
    Phase.ERROR: f"The hand-back has failed and must succeed first; `voxint gpu-phase release` tries it now. {_KEPT}",
}
_RELEASE = {
    Phase.LLM: "The language model has the GPU already. {held_off}",
    Phase.DRAINING_POST: "The switch to audio is called off {soon}. {held_off}",
    Phase.ACQUIRING: "The broker is not asked for the GPU again: {soon} it is told to take back whatever it has granted, and"
    " the phase goes to llm.",
    Phase.STARTING_SERVICES: "The model services are stopped {soon}, and the GPU is handed back.",
    Phase.AUDIO: "The hand-back begins {soon}: no recording begins any more, those in progress ({gpu}) finish first, then"
    " the model services stop and the GPU is handed back.",
    Phase.DRAINING: "The model services are stopped {soon}, also under recordings in progress ({gpu}): their stages go"
    " back to the queue, use no attempt, and go on in the next audio window.",
    Phase.STOPPING_SERVICES: "The GPU is being handed back already: there is nothing more to do.",
    Phase.RELEASING: "The GPU is being handed back already: there is nothing more to do.",
    Phase.ERROR: "The hand-back is tried again {soon}{instead}.",
}


def _filled(text: str, view: PhaseView, zone: tzinfo | None, soon: str) -> str:
    state, policy = view.state, view.policy
    retry_after = state.retry_after if state else None
    until = later(retry_after, view.now + policy.min_dwell)
    held_off = "GPU_PHASE_MIN_DWELL_SECONDS is 0: the next switch to audio is not held off."
    if until > view.now:
        wait, end = figures.span(until - view.now), figures.clock(until, view.now, zone)
        held_off = f"The next switch to audio is held off for {wait}, until {end}."
    instead = ""
    if retry_after is not None and retry_after > view.now:
        instead = f", and not only at {figures.clock(retry_after, view.now, zone)}"
    return text.format(
        soon=soon,
        gpu=view.gpu_lane.running,
        post=view.post_lane.running,
        held_off=held_off,
        instead=instead,
    )


def _overrides(view: PhaseView, zone: tzinfo | None) -> list[str]:
    """What `audio-now` skips in llm."""
    state = view.state
    if state is None or state.phase is not Phase.LLM:
        return []
    said = []
    if view.held and view.hold_until is not None:
        by = f" of {view.hold_by}" if view.hold_by else ""
        said.append(f"It overrides the hold{by} until {figures.clock(view.hold_until, view.now, zone)}.")
    if not view.policy.windows.open_at(view.now):
        said.append(f"It overrides GPU_PHASE_WINDOWS ({view.policy.windows}).")
    if state.retry_after is not None and state.retry_after > view.now:
        said.append(f"It does not wait until {figures.clock(state.retry_after, view.now, zone)}.")
    return said


def _nothing_to_do(kind: RequestKind, view: PhaseView) -> list[str]:
    """`audio-now` without anything to work on: the GPU comes back with nothing done."""
    if kind is not RequestKind.AUDIO_NOW or view.switch_wanted or view.gpu_lane.running:
        return []
    why = "The queue is paused" if view.paused else "No recording is queued"
    dwell = view.policy.min_dwell
    if view.state is not None and view.state.phase is Phase.AUDIO:
        left = dwell - view.state.age(view.now)
        back = f"in {figures.span(left)}" if left > timedelta(0) else "at once"
        return [f"{why}: the GPU goes back {back}, unless that changes meanwhile."]
    back = f"after {figures.span(dwell)}" if dwell else "at once"
    return [f"{why}: the GPU comes back {back} with nothing done, unless that changes meanwhile."]


def hold_words(view: PhaseView, zone: tzinfo | None) -> str:
    """After `hold`: until when, and what it does not stop."""
    until = figures.moment(view.hold_until, zone) if view.hold_until else phases.ABSENT
    on_the_way = ""
    if view.phase not in {None, Phase.LLM}:
        on_the_way = " The turn that is under way is not cut short by it; `voxint gpu-phase release` does that."
    return f"No switch to audio begins by itself until {until}; `voxint gpu-phase audio-now` overrides it.{on_the_way}"


def resumed_words(view: PhaseView, *, was_held: bool) -> str:
    """After `resume`."""
    if not was_held:
        return "There was no hold."
    if view.switch_wanted and view.phase is Phase.LLM:
        return "The hold is gone. Recordings wait: the next tick looks at them again."
    return "The hold is gone."
