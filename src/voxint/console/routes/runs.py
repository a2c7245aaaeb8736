"""The first page: who has the GPU, adding recordings, and the list of them."""

from __future__ import annotations

import secrets
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import Query, Request
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from voxint.console import estimate, views
from voxint.console.forms import TOKEN, Form, RefusedError, check_token
from voxint.console.uploads import Taken, bytes_words, title_in
from voxint.db.tables import RUN_STATUSES
from voxint.recordings.address import is_url

if TYPE_CHECKING:
    from fastapi import FastAPI

    from voxint.console.estimate import Habits
    from voxint.console.pages import Console
    from voxint.gpu_phase.view import PhaseView
    from voxint.recordings.run import Run

PAGE = 50
"""Recordings on a page."""
_HABITS_SECONDS = 60.0
_MOST_EVENTS = 2000
Status = Literal["", "queued", "running", "done", "failed", "cancelled"]


class _Habits:
    """What is usual, looked up once a minute: it changes with every recording, and by little."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._found: Habits | None = None
        self._due = 0.0

    def look(self, view: PhaseView) -> Habits | None:
        if monotonic() >= self._due:
            parts = self._console.parts
            events = parts.phase_store.events(view.now - estimate.LOOK_BACK, _MOST_EVENTS) if view.enabled else []
            took = estimate.recent(parts.engine)
            self._found = estimate.habits(events, took) if view.enabled else estimate.without_turns(took)
            self._due = monotonic() + (_HABITS_SECONDS if self._found else 5.0)
        return self._found


def register(app: FastAPI, console: Console) -> None:
    """Put the routes on the application."""
    usual = _Habits(console)
    parts = console.parts

    @app.get("/")
    def runs_page(
        request: Request,
        before: Annotated[int | None, Query(ge=1, le=1 << 62)] = None,
        search: Annotated[str, Query(alias="q", max_length=200)] = "",
        status: Status = "",
    ) -> Response:
        view = console.view()
        _, drawn = console.history(view)
        wanted = search.strip()
        found = parts.run_store.list(limit=PAGE + 1, before=before, status=status or None, search=wanted or None)
        shown = found[:PAGE]
        page = views.runs_page(
            view,
            shown,
            drawn,
            dict(parts.stages.stages),
            None,
            older=shown[-1].id if len(found) > PAGE else None,
            next_switch=estimate.next_switch(view, None),
            estimate=estimate.words(view, usual.look(view), None),
        )
        return console.render(
            request,
            "runs.html",
            page="runs",
            page_value=page,
            first_page=before is None,
            search=wanted,
            wanted_status=status,
            statuses=RUN_STATUSES,
            most_bytes=parts.settings.upload_max_bytes,
            most_words=bytes_words(parts.settings.upload_max_bytes),
            paths=console.paths_words(),
            once=secrets.token_hex(12),
        )

    @app.post("/runs")
    def add(request: Request, fields: Form) -> Response:
        source = fields.get("source", "").strip()
        if not source:
            raise RefusedError(422, "There is nothing to add", "Give an address, or the path of a file.")
        run = console.add(source, fields)
        console.note(request, f"added recording {run.id} by its {'address' if is_url(source) else 'path'}")
        return console.then(request, "/", f"Recording {run.id} is queued: {run.title}")

    @app.post("/uploads")
    async def upload(request: Request) -> Response:
        wants_json = "application/json" in request.headers.get("accept", "")
        try:
            async with console.intake.form(request, lambda sent: check_token(request, sent.get(TOKEN, ""))) as taken:
                run = await run_in_threadpool(_queue, console, request, taken)
        except RefusedError as refused:
            if wants_json:
                return JSONResponse({"error": refused.text, "heading": refused.heading}, refused.status)
            raise
        said = f"Recording {run.id} is queued: {run.title}"
        answer = await run_in_threadpool(console.then, request, "/", said)
        return JSONResponse({"run": run.id, "to": "/"}, 201) if wants_json else answer


def _queue(console: Console, request: Request, taken: Taken) -> Run:
    """An upload that has arrived, once: a form that was sent twice is one recording."""
    run = console.queue_upload(taken, title_in(taken.name), taken.fields)
    console.note(request, f"uploaded recording {run.id}")
    return run
