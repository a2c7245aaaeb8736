"""PURE: the phases and causes in plain words, and the lines of `gpu-phase status` and of doctor's `gpu sharing`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxint.gpu_phase.model import Cause, Phase, RequestKind
from voxint.gpu_phase.reasons import NOT_HANDED_BACK, NOT_TAKEN_BACK, clean, mend
from voxint.gpu_phase.view import NO_PHASE
from voxint.gpu_phase.wording import figures

if TYPE_CHECKING:
    from datetime import datetime, tzinfo

    from voxint.gpu_phase.view import LaneView, PhaseView

ABSENT = "-"
NO_PHASE_YET = "no phase recorded yet"
OFF = "GPU sharing is off"

PHASE_WORDS: dict[Phase, str] = {
    Phase.LLM: "the language model has the GPU",
    Phase.DRAINING_POST: "the language model has the GPU; its work in progress finishes, then the GPU goes to audio",
    Phase.ACQUIRING: "the GPU is being handed over: the broker stops the language model",
    Phase.STARTING_SERVICES: "Voxint has the GPU; the model services are starting",
    Phase.AUDIO: "Voxint has the GPU; recordings are worked on",
    Phase.DRAINING: "Voxint has the GPU; recordings in progress finish, then the GPU goes back",
    Phase.STOPPING_SERVICES: "Voxint has the GPU; the model services are stopping",
    Phase.RELEASING: "the GPU is being handed back: the broker starts the language model",
    Phase.ERROR: "the GPU could not be handed back; nobody can work on it",
}
"""Who has the GPU, and what happens."""

CAUSE_WORDS: dict[Cause, str] = {
    Cause.FIRST_TICK: "the phase task ran for the first time",
    Cause.SERVICE_RUNS: "a model service was found running",
    Cause.LEASE_FOUND: "the broker still held a lease of Voxint's",
    Cause.AUDIO_NOW: "an operator asked for audio",
    Cause.WORK_WAITS: "recordings waited",
    Cause.RELEASE_ASKED: "an operator asked for the release",
    Cause.POST_DRAINED: "the language model's work in progress had finished",
    Cause.GRANTED: "the broker granted the GPU",
    Cause.REFUSED: "the broker refused the GPU",
    Cause.ACQUIRE_FAILED: "the broker gave no usable answer",
    Cause.ACQUIRE_LIMIT: "the broker took too long to free the GPU",
    Cause.SERVICES_HEALTHY: "all model services were up",
    Cause.START_LIMIT: "the model services took too long to come up",
    Cause.WRONG_DEVICE: "a model service came up on the wrong device",
    Cause.LEASE_LOST: "the lease was lost",
    Cause.SERVICE_STOPPED: "a model service had stopped",
    Cause.QUEUE_EMPTY: "no recording was left",
    Cause.MAX_AUDIO: "the longest audio phase was over",
    Cause.WINDOW_CLOSED: "the hours for audio were over",
    Cause.DRAINED: "the recordings in progress had finished",
    Cause.RELEASE_FORCED: "an operator asked to hand back at once",
    Cause.SERVICES_STOPPED: "all model services had stopped",
    Cause.STOP_LIMIT: "the model services took too long to stop",
    Cause.RELEASED: "the broker had the language model running again",
    Cause.NOTHING_HELD: "the broker held no lease of Voxint's",
    Cause.STATUS_UNKNOWN: "the broker could not be asked, and no lease was known",
    Cause.RELEASE_FAILED: "the broker could not take the GPU back",
    Cause.RELEASE_LIMIT: "the broker took too long to bring the language model back",
    Cause.RETRY: "the hand-back was due to be tried again",
    Cause.IDLE: "nothing to do",
    Cause.WAITING: "waiting",
    Cause.UNKNOWN: "something could not be asked",
    Cause.HELD_OFF: "a switch is wanted, and not yet due",
    Cause.LEASE_LEARNED: "the lease to give back was learned from the broker",
    Cause.WORKING: "work is in progress",
}
"""Why a tick moved the phase, or why it stayed."""


def phase_words(view: PhaseView) -> str:
    """The phase in plain words, also where there is none."""
    if not view.enabled:
        return OFF
    return PHASE_WORDS[view.state.phase] if view.state else NO_PHASE_YET


def status_lines(view: PhaseView, zone: tzinfo | None) -> list[tuple[str, str]]:
    """The labels and values of `gpu-phase status`. `zone` None is the machine's own."""
    state, now = view.state, view.now
    named = PHASE_WORDS[state.phase] if state else NO_PHASE_YET
    return [
        ("phase", f"{view.phase_name if state else NO_PHASE} - {named}"),
        ("since", figures.ago(state.phase_since, now, zone) if state else ABSENT),
        ("last tick", _last_tick(view, zone)),
        ("lease expires", _lease(view, zone)),
        ("last error", clean(state.last_error) if state and state.last_error else ABSENT),
        ("failures", str(state.failures) if state else "0"),
        ("next try", next_try(view, zone)),
        ("request", _request(view, zone)),
        ("gpu lane", _lane(view.gpu_lane, paused=view.paused) + _held_up(view)),
        ("post lane", _lane(view.post_lane) + _waits_for(view)),
    ]


def _last_tick(view: PhaseView, zone: tzinfo | None) -> str:
    if view.ticked_at is None:
        return ABSENT
    text = figures.ago(view.ticked_at, view.now, zone)
    return f"{text}: the phase task does not run" if view.enabled and view.silent else text


def _lease(view: PhaseView, zone: tzinfo | None) -> str:
    state = view.state
    if state is None or state.lease_id is None:
        return ABSENT
    lost = " (lost)" if state.lease_lost else ""
    if state.lease_expires_at is None:
        return f"never, it is given back explicitly{lost}"
    return figures.ahead(state.lease_expires_at, view.now, zone) + lost


def next_try(view: PhaseView, zone: tzinfo | None) -> str:
    """When the phase moves on by itself at the earliest, with what binds it."""
    following = view.next_try
    if following is None:
        return ABSENT
    if view.blind is not None:
        return "once what could not be asked answers"
    words = {
        "min dwell": "the end of min dwell",
        "backoff": "the wait after a failure",
        "release": "the wait that a release asked for",
        "windows": f"the hours for audio are {view.policy.windows}",
        "hold": f"the hold of {view.hold_by}" if view.hold_by else "the hold",
    }[following.binds]
    if following.at > view.now:
        return f"{figures.ahead(following.at, view.now, zone)}: {words}"
    return f"{_begins(view)}: {words} has passed"


def _begins(view: PhaseView) -> str:
    """What the next try waits for where no time binds it any more."""
    asked = view.request is not None and view.request.kind is RequestKind.AUDIO_NOW
    if view.phase is Phase.ERROR or view.switch_wanted or asked:
        return "at the next tick"
    return "when the queue goes on" if view.paused and view.gpu_lane.waiting else "as soon as a recording waits"


def _request(view: PhaseView, zone: tzinfo | None) -> str:
    request = view.request
    if request is None:
        return "none"
    by = f" by {clean(request.requested_by)}" if request.requested_by else ""
    return f"{request.kind.value}, made {figures.ago(request.requested_at, view.now, zone)}{by}"


def _lane(lane: LaneView, *, paused: bool = False) -> str:
    opened = "open" if lane.open else "closed"
    if paused:
        opened += ", queue paused"
    return f"{opened}; {lane.waiting:,} waiting, {lane.running:,} running"


def _held_up(view: PhaseView) -> str:
    """What the tick saw that keeps the GPU's lane waiting, or that goes wrong in it."""
    state = view.state
    if not view.enabled or state is None or not state.note:
        return ""
    if view.blind is not None:
        return f" ({no_switch(view)})"
    return "" if state.phase is Phase.LLM else f" ({_noted(state.note)})"


def _waits_for(view: PhaseView) -> str:
    state = view.state
    if not view.enabled or state is None or state.phase is not Phase.LLM or view.post_lane.open or not state.note:
        return ""
    # What could not be asked keeps the other lane waiting, and stands there.
    note = state.note.removeprefix(view.blind or "").lstrip("; ")
    return f" ({clean(note)})" if note else ""


def no_switch(view: PhaseView) -> str:
    """Something that must be known could not be asked: what does not happen, and why."""
    what = "the broker is not asked for the GPU" if view.phase is Phase.ACQUIRING else "no switch to audio begins"
    return f"{what} until this is mended: {figures.phrase(view.blind or '')}{mend(view.blind)}"


def not_run_since(view: PhaseView, zone: tzinfo | None) -> str:
    """The phase task has stopped running."""
    if view.ticked_at is None:
        return "the GPU sharing task has never run"
    return f"the GPU sharing task has not run since {figures.moment(view.ticked_at, zone)}"


def sharing_line(view: PhaseView, zone: tzinfo | None) -> tuple[str, str]:
    """Doctor's line: ok, warn or off, and what was seen with what to do."""
    state = view.state
    if not view.enabled:
        return ("warn", leftover(view)) if view.leftover else ("off", OFF)
    check = "Check that the gpu-phase worker and beat are running"
    if state is None:
        return "warn", f"{NO_PHASE_YET}: both lanes wait until the GPU sharing task has run. {check}"
    if view.silent:
        return "warn", f"{not_run_since(view, zone)}; the stored phase is {state.phase.value}. {check}"
    if state.phase is Phase.ERROR or view.hand_back_failed:
        return "warn", error_words(view, zone)
    if view.llm_overdue:
        return "warn", llm_overdue(view)
    words = f"{state.phase.value}: {PHASE_WORDS[state.phase]}"
    wrong = _wrong(view, zone)
    if wrong:
        return "warn", ". ".join([words, *wrong])
    return ("ok", f"{words}. {_noted(state.note)}" if state.note else words)


def _noted(note: str) -> str:
    """What the last tick saw, and what a person can do about it."""
    return f"{clean(note)}{mend(note)}"


def _wrong(view: PhaseView, zone: tzinfo | None) -> list[str]:
    """What is wrong in a phase that is none itself."""
    state, found = view.state, []
    if view.blind is not None:
        found.append(figures.capital(no_switch(view)))
    if state is not None and state.failures and state.last_error:
        failed = f"The last switch failed ({figures.count(state.failures, 'failure')} in a row)"
        found.append(f"{failed}: {figures.phrase(state.last_error)}")
        if view.blind is None:
            found.append(f"Next try: {next_try(view, zone)}")
    return found


def error_words(view: PhaseView, zone: tzinfo | None) -> str:
    """The hand-back failed: what happened, and what to do."""
    state = view.state
    cause = figures.phrase(state.last_error) if state and state.last_error else "the reason is not known"
    for said in (NOT_TAKEN_BACK, NOT_HANDED_BACK):
        cause = cause.removeprefix(f"{said}: ")
    if state is not None and state.phase is not Phase.ERROR:
        again = "It is being tried again now"
    elif state is not None and state.retry_after is not None and state.retry_after > view.now:
        again = f"It is tried again at {figures.clock(state.retry_after, view.now, zone)}"
    else:
        again = "It is tried again at the next tick"
    return (
        f"the GPU could not be handed back: {cause}{mend(cause)}. {again}; `voxint gpu-phase release` tries at once,"
        " after the cause is mended"
    )


def llm_overdue(view: PhaseView) -> str:
    """The broker says that the GPU is free, and yet the language model has not answered for a long time."""
    state = view.state
    silence = figures.span(view.now - view.llm_silent_since) if view.llm_silent_since else "long"
    named = figures.phrase(state.note) if state and state.note else "the language model does not answer"
    return (
        f"the broker reports the GPU as free, and for {silence} {named}. Bring it back, or take it out of the settings"
    )


def leftover(view: PhaseView) -> str:
    """Sharing is off while the row still says that something is held."""
    state = view.state
    phase = state.phase.value if state else NO_PHASE
    held = " and a lease is recorded" if state is not None and state.lease_id is not None else ""
    return (
        f"GPU sharing is off, but the stored phase is {phase}{held}: the lease may still be held and the language"
        " model stopped. To give it back, set GPU_PHASE_ENABLED=true again, run `voxint gpu-phase release`, and turn"
        " sharing off when `voxint gpu-phase status` shows llm"
    )


def moment(at: datetime, zone: tzinfo | None) -> str:
    """A moment, for tables."""
    return figures.moment(at, zone)
