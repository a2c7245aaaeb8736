"""Settings: Status with doctor's rows, the timeline and the service controls; the sign-in; the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy.exc import SQLAlchemyError

from voxint.access.passwords import BusyError
from voxint.console import views
from voxint.console.forms import Form, RefusedError, session_of
from voxint.console.pages import address_of
from voxint.gpu_phase.wording import history, notices
from voxint.gpu_phase.wording.figures import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastapi import FastAPI

    from voxint.console.pages import Console
    from voxint.gpu_phase.store import Event

_MOST_CHANGES = 200
SIGN_IN = "/settings/sign-in"
STATUS = "/settings/status"
ACTIONS = ("start", "stop", "restart")
SHARED = "GPU sharing starts and stops the model services, in every phase: there is nothing to do by hand"
NO_CONTROL = (
    "this console cannot start or stop services: it needs the service-controls overlay"
    " (compose.service-controls.yaml), or SERVICE_CONTROL"
)


def register(app: FastAPI, console: Console) -> None:
    """Put the routes on the application."""
    _status(app, console)
    _access(app, console)


def _status(app: FastAPI, console: Console) -> None:
    parts = console.parts

    @app.get("/settings")
    @app.get("/status")
    def settings_page() -> Response:
        return RedirectResponse(STATUS, 307)

    @app.get(STATUS)
    def status(request: Request) -> Response:
        findings = console.findings()
        told: tuple[notices.Notice, ...] = ()
        events: Sequence[Event] = ()
        drawn, panel = None, None
        try:
            view = console.view()
            told = notices.notices(view, None)
            panel = views.panel(view, None)
            events, drawn = console.history(view)
        except SQLAlchemyError:
            pass  # the findings say so
        changes = [history.row(event, None) for event in reversed(events[-_MOST_CHANGES:])]
        page = views.status_page(findings, told, drawn, changes)
        names = () if refusal(console) else parts.settings.gpu_phase_services
        return console.render(
            request,
            "status.html",
            page="settings",
            tab="status",
            page_value=page,
            panel=panel,
            heads=history.HEADS,
            services=names,
            actions=ACTIONS,
        )

    @app.post("/settings/services/{name}")
    def control(request: Request, name: str, fields: Form) -> Response:
        why_not = refusal(console)
        if why_not:
            raise RefusedError(409, "This could not be done", sentence(why_not), back=STATUS)
        action = fields.get("action", "")
        if name not in parts.settings.gpu_phase_services or action not in ACTIONS:
            raise RefusedError(
                422, "This could not be done", "There is no such service, or no such action.", back=STATUS
            )
        console.note(request, f"asked for a {action} of {name}")
        problem = ""
        if action in {"stop", "restart"}:
            parts.services.stop(only=[name])
        if action in {"start", "restart"}:
            problem = parts.services.start(only=[name]).get(name, "")
        console.forget_findings()
        if problem:
            return console.then(request, STATUS, sentence(f"{name}: {problem}"), level="alert")
        return console.then(request, STATUS, f"{name}: {action} was asked for. The row below says what came of it.")


def _access(app: FastAPI, console: Console) -> None:
    parts = console.parts

    @app.get(SIGN_IN)
    def sign_in_settings(request: Request) -> Response:
        mine = session_of(request)
        rows = views.session_rows(parts.access.sessions(), mine, None)
        return console.render(
            request,
            "access.html",
            page="settings",
            tab="sign-in",
            rows=rows,
            has_password=parts.access.has_password(),
            has_token=parts.settings.api_token is not None,
        )

    @app.post("/settings/password")
    def change_password(request: Request, fields: Form) -> Response:
        session, address = session_of(request), address_of(request)
        new = fields.get("new", "")
        if new != fields.get("again", ""):
            raise RefusedError(422, "Nothing was changed", "The new password was not the same twice.", back=SIGN_IN)
        try:
            if parts.access.has_password():
                _check_present(console, address, fields.get("password", ""))
            parts.access.change_password(new, keep=session.id)
        except (ValueError, BusyError) as error:
            raise RefusedError(422, "Nothing was changed", sentence(str(error)), back=SIGN_IN) from None
        console.note(request, "changed the password")
        return console.then(request, SIGN_IN, "The password is changed. Everybody else has to sign in anew.")

    @app.post("/settings/sessions/end")
    def end_sessions(request: Request, _fields: Form) -> Response:
        ended = parts.access.close_others(session_of(request).id)
        console.note(request, f"ended {ended} other sessions")
        return console.then(request, SIGN_IN, f"{ended} other sign-ins were ended.")

    @app.get("/settings/record")
    def record(request: Request) -> Response:
        rows = views.record_rows(parts.record.newest(), None)
        return console.render(request, "record.html", page="settings", tab="record", rows=rows)


def _check_present(console: Console, address: str, given: str) -> None:
    """Somebody at a page that was left open is not the one who knows the password.

    Raises:
        RefusedError: it is another one, or too many were tried.
        BusyError: too many are checked at this moment.
    """
    if console.attempts.begin(address) > 0:
        raise RefusedError(429, "Too many attempts", "Wait a few minutes.", back=SIGN_IN)
    try:
        right = console.parts.access.is_password(given)
    except (BusyError, SQLAlchemyError):
        console.attempts.take_back(address)
        raise
    if not right:
        raise RefusedError(403, "Nothing was changed", "The present password is another one.", back=SIGN_IN)
    console.attempts.succeeded(address)


def refusal(console: Console) -> str:
    """Why services are not started and stopped from here; empty where they may be."""
    if console.parts.settings.gpu_phase_enabled:
        return SHARED
    return NO_CONTROL if console.parts.settings.service_control == "none" else ""
