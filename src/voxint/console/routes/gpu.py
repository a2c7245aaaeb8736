"""What operators ask for: audio now, release, hold, and a pause of the queue. In the words of the command line."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fastapi import Request
from fastapi.responses import Response

from voxint.console.forms import Form, RefusedError, page_in, session_of
from voxint.gpu_phase.model import RequestKind
from voxint.gpu_phase.wording.figures import sentence
from voxint.gpu_phase.wording.requests import hold_words, next_step, off_words, resumed_words

if TYPE_CHECKING:
    from fastapi import FastAPI

    from voxint.console.pages import Console

LONGEST_HOLD_HOURS = 168.0
PAUSED = "The queue is paused: no recording begins, and no switch to audio either."


def register(app: FastAPI, console: Console) -> None:
    """Put the routes on the application."""
    parts = console.parts

    @app.post("/gpu/audio-now")
    def audio_now(request: Request, fields: Form) -> Response:
        return ask(request, fields, RequestKind.AUDIO_NOW)

    @app.post("/gpu/release")
    def release(request: Request, fields: Form) -> Response:
        return ask(request, fields, RequestKind.RELEASE)

    def ask(request: Request, fields: Form, kind: RequestKind) -> Response:
        _refuse_when_off(console)
        before = console.view()
        parts.phase_store.record_request(kind, session_of(request).by)
        woken = parts.publisher.wake_phase()
        console.note(request, f"asked for {kind.value}")
        return console.then(request, page_in(fields, "/"), *next_step(kind, before, None, woken=woken))

    @app.post("/gpu/hold")
    def hold(request: Request, fields: Form) -> Response:
        _refuse_when_off(console)
        hours = _hours(fields.get("hours", ""))
        until = parts.phase_store.now() + timedelta(hours=hours)
        parts.phase_store.set_hold(until, session_of(request).by)
        console.note(request, f"held switches off for {hours:g} h")
        return console.then(request, page_in(fields, "/"), hold_words(console.view(), None))

    @app.post("/gpu/resume")
    def resume(request: Request, fields: Form) -> Response:
        _refuse_when_off(console)
        was_held = console.view().held
        parts.phase_store.set_hold(None, session_of(request).by)
        console.aside(parts.publisher.wake_phase)
        console.note(request, "ended the hold")
        return console.then(request, page_in(fields, "/"), resumed_words(console.view(), was_held=was_held))

    @app.post("/queue/pause")
    def pause(request: Request, fields: Form) -> Response:
        parts.phase_store.set_paused(paused=True, by=session_of(request).by)
        console.note(request, "paused the queue")
        return console.then(request, page_in(fields, "/"), PAUSED)

    @app.post("/queue/resume")
    def go_on(request: Request, fields: Form) -> Response:
        was_paused = parts.phase_store.control().paused_at is not None
        parts.phase_store.set_paused(paused=False, by=session_of(request).by)
        console.wake()
        console.note(request, "let the queue go on")
        return console.then(
            request, page_in(fields, "/"), "The queue goes on." if was_paused else "The queue was not paused."
        )


def _refuse_when_off(console: Console) -> None:
    if not console.parts.settings.gpu_phase_enabled:
        raise RefusedError(409, "This could not be done", sentence(off_words(console.view())))


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    if not 0 < hours <= LONGEST_HOLD_HOURS:
        raise RefusedError(422, "This could not be done", f"A hold lasts up to {LONGEST_HOLD_HOURS:g} hours.")
    return hours
