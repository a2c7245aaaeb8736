"""The console's application: its routes, behind the guard that every request passes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Annotated

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from redis import RedisError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from voxint.console import metrics, views
from voxint.console.guard import Guard
from voxint.console.picture import picture
from voxint.db.trouble import place, words
from voxint.doctor.checks import run_checks
from voxint.gpu_phase import totals
from voxint.gpu_phase.status import look
from voxint.gpu_phase.timeline import stretches
from voxint.gpu_phase.wording import history, notices
from voxint.gpu_phase.wording.figures import sentence
from voxint.work import meter

if TYPE_CHECKING:
    from voxint.console.picture import Picture
    from voxint.doctor.finding import Finding
    from voxint.gpu_phase.store import Event
    from voxint.gpu_phase.view import PhaseView
    from voxint.wiring import Parts

HERE = Path(__file__).parent
PAGE = 50
"""Recordings on a page."""
REFRESH_SECONDS = 3
FINDINGS_SECONDS = 5.0
WINDOW = timedelta(hours=24)
LANE_BOUND = 100_000
"""Lanes are counted up to this on pages, which look often."""
_MOST_EVENTS = 5000
_MOST_CHANGES = 200


class Console:
    """What the routes need: the parts, and the templates with everything escaped."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._checking = Lock()
        self._found: list[Finding] | None = None
        self._found_at = 0.0
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )

    def render(self, name: str, status: int = 200, **values: object) -> HTMLResponse:
        """A page. It is as old as its moment: no browser or proxy keeps it."""
        text = self._templates.get_template(name).render(**values)
        return HTMLResponse(text, status_code=status, headers={"cache-control": "no-store"})

    def view(self) -> PhaseView:
        """The phase now."""
        return look(self.parts.phase_store, self.parts.settings, bound=LANE_BOUND)

    def history(self, view: PhaseView) -> tuple[list[Event], Picture | None]:
        """The changes of the last day, and their picture; nothing with sharing off."""
        if not view.enabled or view.state is None:
            return [], None
        begin = view.now - WINDOW
        events = self.parts.phase_store.events(begin, _MOST_EVENTS)
        return events, picture(stretches(events, view.state, begin, view.now), None)

    def runs(self, before: int | None) -> HTMLResponse:
        """The first page."""
        view = self.view()
        _, drawn = self.history(view)
        runs = self.parts.run_store.list(limit=PAGE + 1, before=before)
        shown = runs[:PAGE]
        older = shown[-1].id if len(runs) > PAGE else None
        lanes = dict(self.parts.stages.stages)
        page = views.runs_page(view, shown, drawn, lanes, None, older=older)
        return self.render(
            "runs.html", page="runs", page_value=page, refresh_seconds=REFRESH_SECONDS, first_page=before is None
        )

    def status(self) -> HTMLResponse:
        """Doctor's findings and the timeline, also while the database is away."""
        findings = self.findings()
        told: tuple[notices.Notice, ...] = ()
        events: list[Event] = []
        drawn = None
        try:
            view = self.view()
            told = notices.notices(view, None)
            events, drawn = self.history(view)
        except SQLAlchemyError:
            pass  # the findings say so
        changes = [history.row(event, None) for event in reversed(events[-_MOST_CHANGES:])]
        page = views.status_page(findings, told, drawn, changes)
        return self.render("status.html", page="status", page_value=page, heads=history.HEADS)

    def findings(self) -> list[Finding]:
        """Doctor's findings, at most a few seconds old: however often the page is asked for, they are made once."""
        with self._checking:
            if self._found is None or monotonic() - self._found_at > FINDINGS_SECONDS:
                self._found, self._found_at = run_checks(self.parts), monotonic()
            return self._found

    def metrics(self) -> PlainTextResponse:
        """What Prometheus reads. Without Redis the ticks' counts are left out."""
        view = self.view()
        try:
            ticks = meter.read(self.parts.publisher.client)
        except (RedisError, OSError):
            ticks = None
        text = metrics.render(metrics.families(view, totals.steps(self.parts.engine), ticks))
        return PlainTextResponse(text, media_type=metrics.CONTENT_TYPE)

    def trouble(self, status: int, heading: str, text: str) -> HTMLResponse:
        """A page that could not be made, in words."""
        return self.render("trouble.html", status, page="", heading=heading, text=text)


def make_console(parts: Parts) -> FastAPI:
    """The application over these parts."""
    console = Console(parts)
    app = FastAPI(title="Voxint", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, allowed_hosts=parts.settings.console_allowed_hosts)
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")

    @app.get("/healthz")
    def healthz() -> PlainTextResponse:
        """This process answers. It says nothing of anything else, and needs no sign-in."""
        return PlainTextResponse("ok")

    @app.get("/")
    def runs(before: Annotated[int | None, Query(ge=1, le=1 << 62)] = None) -> HTMLResponse:
        return console.runs(before)

    @app.get("/metrics")
    def prometheus() -> PlainTextResponse:
        return console.metrics()

    @app.get("/status")
    def status() -> HTMLResponse:
        return console.status()

    @app.exception_handler(SQLAlchemyError)
    def database_away(_request: Request, error: SQLAlchemyError) -> Response:
        return console.trouble(503, "The database is away", sentence(words(error, place(parts.settings))))

    @app.exception_handler(RequestValidationError)
    def not_understood(_request: Request, _error: RequestValidationError) -> Response:
        return console.trouble(400, "This address cannot be right", "A value in it is none that this page takes.")

    @app.exception_handler(HTTPException)
    def refused(_request: Request, error: HTTPException) -> Response:
        heading = "There is no such page" if error.status_code == 404 else "This could not be done"
        return console.trouble(error.status_code, heading, sentence(str(error.detail)))

    return app
