"""One recording: its page, its sound, its transcript in every form, and what people do to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

from fastapi import Path as Part
from fastapi import Query, Request
from fastapi.responses import FileResponse, Response

from voxint.console import run_views
from voxint.console.forms import Form, RefusedError
from voxint.gpu_phase.wording.figures import sentence
from voxint.recordings.lifecycle import NotPossibleError
from voxint.recordings.roster import NoSpeakerError
from voxint.recordings.versions import NoTranscriptError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fastapi import FastAPI

    from voxint.console.pages import Console
    from voxint.recordings.exports.document import Transcript
    from voxint.recordings.run import RunDetail
    from voxint.recordings.versions import Export

RunId = Annotated[int, Part(ge=1, le=1 << 62)]
Language = Annotated[str | None, Query(pattern=r"^[A-Za-z0-9-]{0,20}$")]
Version = Annotated[int | None, Query(ge=1, le=1 << 30)]


def register(app: FastAPI, console: Console) -> None:  # noqa: C901, PLR0915 - one small function a route
    """Put the routes on the application."""
    parts = console.parts

    @app.get("/runs/{run_id}")
    def run_page(
        request: Request,
        run_id: RunId,
        language: Language = None,
        version: Version = None,
        first: Annotated[int, Query(alias="from", ge=0, le=1 << 30)] = 0,
    ) -> Response:
        detail = _detail(console, run_id)
        top = run_views.head(detail, console.view(), dict(parts.stages.stages), None)
        results = parts.run_store.results(run_id) if detail.results else {}
        page = run_views.run_page(
            top,
            detail,
            _transcript(console, run_id, version, language or None),
            has_sound=sound_of(detail, results) is not None,
            first=first,
            language=language or None,
            languages=sorted(results.get("translation", {}).get("languages", {})),
            versions=parts.transcripts.versions(run_id),
            jobs=parts.jobs.list(run_id),
            results=results,
            zone=None,
        )
        known = [each.name for each in parts.roster.list() if each.name] if page.spoken else []
        return console.render(request, "run.html", page="runs", page_value=page, known_names=known)

    @app.get("/runs/{run_id}/sound")
    def sound(run_id: RunId) -> Response:
        detail = _detail(console, run_id)
        path = sound_of(detail, parts.run_store.results(run_id))
        if path is None:
            raise RefusedError(404, "There is no sound", "Its sound has not been decoded yet, or its file is gone.")
        return FileResponse(path, media_type="audio/wav", headers={"cache-control": "private, max-age=3600"})

    @app.get("/runs/{run_id}/transcript")
    def transcript(
        run_id: RunId,
        form: Annotated[str, Query(alias="format", max_length=20)] = "txt",
        language: Language = None,
        version: Version = None,
    ) -> Response:
        try:
            found = parts.transcripts.export(run_id, form, number=version, language=language or None)
        except NoTranscriptError as error:
            raise RefusedError(
                404, "There is no such transcript", sentence(str(error)), back=f"/runs/{run_id}"
            ) from None
        return download(found)

    @app.post("/runs/{run_id}/cancel")
    def cancel(request: Request, run_id: RunId, _fields: Form) -> Response:
        _possible(lambda: parts.lifecycle.cancel(run_id), run_id)
        console.note(request, f"cancelled recording {run_id}")
        return console.then(request, f"/runs/{run_id}", f"Recording {run_id} is cancelled.")

    @app.post("/runs/{run_id}/requeue")
    def requeue(request: Request, run_id: RunId, _fields: Form) -> Response:
        stage = _possible(lambda: parts.lifecycle.requeue(run_id), run_id)
        console.wake()
        console.note(request, f"requeued recording {run_id} at {stage}")
        return console.then(request, f"/runs/{run_id}", f"Recording {run_id} is queued again, at {stage}.")

    @app.post("/runs/{run_id}/delete")
    def delete(request: Request, run_id: RunId, _fields: Form) -> Response:
        _possible(lambda: parts.run_store.delete(run_id), run_id)
        console.note(request, f"deleted recording {run_id}")
        return console.then(request, "/", f"Recording {run_id} is deleted, with its files and all that was made of it.")

    @app.post("/runs/{run_id}/speakers")
    def name_speaker(request: Request, run_id: RunId, fields: Form) -> Response:
        label, name = fields.get("label", ""), fields.get("name", "")
        try:
            parts.roster.name_in_run(run_id, label, name)
        except (NoSpeakerError, ValueError) as error:
            raise _refused(error, run_id) from None
        console.note(request, f"named {label} of recording {run_id}")
        return console.then(request, f"/runs/{run_id}#speakers", f"{label} is {' '.join(name.split())}.")

    @app.post("/runs/{run_id}/jobs")
    def ask(request: Request, run_id: RunId, fields: Form) -> Response:
        kind = fields.get("kind", "")
        try:
            parts.jobs.ask(run_id, kind, language=fields.get("language") or None)
        except ValueError as error:  # NotPossibleError is one
            raise _refused(error, run_id) from None
        console.wake()
        console.note(request, f"asked for {kind} of recording {run_id}")
        words = run_views.JOB_WORDS[kind]
        return console.then(
            request, f"/runs/{run_id}#more", f"{words}: queued. It is made in the language model's time."
        )

    @app.post("/runs/{run_id}/jobs/cancel")
    def cancel_job(request: Request, run_id: RunId, fields: Form) -> Response:
        kind = fields.get("kind", "")
        try:
            parts.jobs.cancel(run_id, kind)
        except ValueError as error:
            raise _refused(error, run_id) from None
        console.note(request, f"cancelled {kind} of recording {run_id}")
        return console.then(request, f"/runs/{run_id}#more", f"{run_views.JOB_WORDS[kind]}: cancelled.")


def _detail(console: Console, run_id: int) -> RunDetail:
    detail = console.parts.run_store.show(run_id)
    if detail is None:
        raise RefusedError(404, "There is no such recording", f"Recording {run_id} is not there, or no longer.")
    return detail


def _transcript(
    console: Console, run_id: int, version: int | None, language: str | None
) -> tuple[int, Transcript] | None:
    try:
        return console.parts.transcripts.find(run_id, number=version, language=language)
    except NoTranscriptError as error:
        if version is None and language is None:
            return None
        raise RefusedError(404, "There is no such transcript", sentence(str(error)), back=f"/runs/{run_id}") from None


def sound_of(detail: RunDetail, results: dict[str, dict[str, object]]) -> Path | None:
    """The decoded sound, below the recording's own folder; None where it is not there."""
    name = results.get("prepare", {}).get("file")
    if not isinstance(name, str):
        return None
    folder = detail.run.folder.resolve()
    path = (folder / name).resolve()
    return path if path.is_relative_to(folder) and path.is_file() else None


def download(found: Export) -> Response:
    """A transcript as a file; its name is given both as every browser reads it, and as it is."""
    plain = "".join(each if each.isascii() and each.isprintable() and each not in '"\\' else "_" for each in found.name)
    disposition = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(found.name, safe='')}"
    headers = {"content-disposition": disposition, "cache-control": "no-store"}
    return Response(found.body, media_type=found.media_type, headers=headers)


def _possible(step: Callable[[], str | None], run_id: int) -> str | None:
    try:
        return step()
    except NotPossibleError as error:
        raise _refused(error, run_id) from None


def _refused(error: Exception, run_id: int) -> RefusedError:
    status = 409 if isinstance(error, NotPossibleError) else 422
    return RefusedError(status, "This could not be done", sentence(str(error)), back=f"/runs/{run_id}")
