"""The HTTP API: add a recording, its state, its transcript. One token, JSON, and nothing more."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from voxint import __version__
from voxint.console.forms import RefusedError
from voxint.console.pages import address_of
from voxint.console.routes.run import download
from voxint.console.uploads import title_in
from voxint.db.trouble import place, words
from voxint.gpu_phase.view import iso
from voxint.recordings.address import is_url, url_for_people
from voxint.recordings.versions import NoTranscriptError
from voxint.storable import storable_text

if TYPE_CHECKING:
    from voxint.console.pages import Console
    from voxint.recordings.run import Run

DESCRIPTION = (
    "Add recordings, ask how far they are, and take their transcripts out. Every call carries "
    '`Authorization: Bearer API_TOKEN`. What goes wrong is said as `{"error": "..."}`.'
)
Status = Literal["queued", "running", "done", "failed", "cancelled"]
Form = Literal["txt", "srt", "vtt", "json", "md"]
RunId = Annotated[int, Path(ge=1, le=1 << 62, description="The recording's number.")]
Code = Annotated[str | None, Query(pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})?$", description="A language code.")]
Speakers = r"^[0-9]{1,2}(-[0-9]{1,2})?$"


BEARER = HTTPBearer(auto_error=False, description="API_TOKEN")


class ErrorAnswer(BaseModel):
    """Why something was not done."""

    error: str


class Wish(BaseModel):
    """A recording to add."""

    model_config = ConfigDict(extra="forbid")

    source: str = Field(min_length=1, max_length=4000, description="An http(s) address, or a path that may be added.")
    title: str | None = Field(None, max_length=1000, description="Shown instead of the file's name.")
    language: str | None = Field(None, max_length=20, description="A code such as `en`; the model tells without.")
    speakers: str | None = Field(None, pattern=Speakers, description="How many speak: `2`, or `2-4`.")


class RunAnswer(BaseModel):
    """A recording as it stands."""

    id: int
    title: str
    status: Status
    stage: str
    progress: float | None = Field(description="Of the stage, 0 to 1; null where nobody can tell.")
    source: str = Field(description="Its address without what may be a secret, or its file's name.")
    language: str | None
    duration_seconds: float | None
    created_at: str
    finished_at: str | None
    error: str | None
    waiting_for: str | None = Field(description="Why its stage was put back the last time.")
    warnings: list[str]


class RunsAnswer(BaseModel):
    """A page of recordings, the newest first."""

    runs: list[RunAnswer]
    before: int | None = Field(description="Give it as `before` for the next page; null on the last one.")


def make_api(console: Console) -> FastAPI:
    """The API's application. Without API_TOKEN every call is refused."""
    api = FastAPI(
        title="Voxint",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        servers=[{"url": "/api/v1"}],
        redirect_slashes=False,
    )
    api.include_router(_routes(console))
    _troubles(api, console)
    return api


def _routes(console: Console) -> APIRouter:
    parts = console.parts

    def known(request: Request, _given: Annotated[object, Security(BEARER)]) -> None:
        _check(console, request)

    refusals: dict[int | str, dict[str, Any]] = {
        code: {"model": ErrorAnswer, "description": text}
        for code, text in {
            400: "Not understood",
            401: "No token, or not this one",
            429: "Too many wrong tokens",
            503: "The database is away",
        }.items()
    }
    missing: dict[int | str, dict[str, Any]] = {404: {"model": ErrorAnswer, "description": "There is no such thing"}}
    unfit: dict[int | str, dict[str, Any]] = {422: {"model": ErrorAnswer, "description": "It cannot be added"}}
    router = APIRouter(dependencies=[Depends(known)], responses=refusals)

    @router.get("/openapi.json", include_in_schema=False)
    def openapi(request: Request) -> dict[str, Any]:
        found: dict[str, Any] = request.app.openapi()
        return found

    @router.get("/runs", operation_id="list_runs")
    def list_runs(
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        before: Annotated[int | None, Query(ge=1, le=1 << 62, description="Only smaller numbers.")] = None,
        status: Status | None = None,
        search: Annotated[str | None, Query(max_length=200, description="A part of the title.")] = None,
    ) -> RunsAnswer:
        """The newest recordings first."""
        found = parts.run_store.list(limit=limit + 1, before=before, status=status, search=search)
        shown = found[:limit]
        return RunsAnswer(runs=[answer(run) for run in shown], before=shown[-1].id if len(found) > limit else None)

    @router.post("/runs", status_code=201, operation_id="add_run", responses=unfit)
    def add_run(request: Request, wish: Wish) -> RunAnswer:
        """Add a recording by its address, or by the path of a file below a folder of CONSOLE_PATHS."""
        fields = {name: storable_text(value) for name, value in wish.model_dump(exclude_none=True).items()}
        run = console.add(fields.pop("source"), fields)
        parts.record.note(_by(request), f"added recording {run.id}")
        return answer(run)

    @router.post(
        "/uploads",
        status_code=201,
        operation_id="upload_run",
        responses={
            **unfit,
            408: {"model": ErrorAnswer, "description": "Too slow"},
            413: {"model": ErrorAnswer, "description": "Too large"},
            507: {"model": ErrorAnswer, "description": "There is no room"},
        },
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
            }
        },
    )
    async def upload_run(
        request: Request,
        name: Annotated[str, Query(max_length=1000, description="The file's name.")] = "recording",
        title: Annotated[str, Query(max_length=1000)] = "",
        language: Annotated[str, Query(max_length=20)] = "",
        speakers: Annotated[str, Query(max_length=10)] = "",
    ) -> RunAnswer:
        """Add a recording that is the body of the request: `curl -T talk.mp3 -X POST ...?name=talk.mp3`."""
        given = {"title": title, "language": language, "speakers": speakers}
        fields = {key: storable_text(value) for key, value in given.items()}
        async with console.intake.body(request, storable_text(name)) as taken:
            run = await run_in_threadpool(console.queue_upload, taken, title_in(taken.name), fields)
        await run_in_threadpool(parts.record.note, _by(request), f"uploaded recording {run.id}")
        return answer(run)

    @router.get("/runs/{run_id}", operation_id="get_run", responses=missing)
    def get_run(run_id: RunId) -> RunAnswer:
        """One recording."""
        run = parts.run_store.get(run_id)
        if run is None:
            raise HTTPException(404, f"there is no recording {run_id}")
        return answer(run)

    @router.get(
        "/runs/{run_id}/transcript",
        operation_id="get_transcript",
        response_class=Response,
        responses={
            **missing,
            200: {
                "description": "The transcript",
                "content": {
                    kind: {}
                    for kind in ("text/plain", "application/x-subrip", "text/vtt", "application/json", "text/markdown")
                },
            },
        },
    )
    def get_transcript(
        run_id: RunId,
        form: Annotated[Form, Query(alias="format")] = "txt",
        language: Code = None,
        version: Annotated[int | None, Query(ge=1, le=1 << 30)] = None,
    ) -> Response:
        """The transcript of a recording that is done, in a form."""
        try:
            return download(parts.transcripts.export(run_id, form, number=version, language=language))
        except NoTranscriptError as error:
            raise HTTPException(404, str(error)) from None

    return router


def answer(run: Run) -> RunAnswer:
    """A recording as the API tells it: without paths of this machine."""
    source = url_for_people(run.source) if is_url(run.source) else run.source.rpartition("/")[2]
    return RunAnswer(
        id=run.id,
        title=run.title,
        status=cast("Status", run.status),
        stage=run.stage,
        progress=run.progress,
        source="upload" if run.source_kind == "upload" else source,
        language=run.language,
        duration_seconds=run.duration_seconds,
        created_at=iso(run.created_at) or "",
        finished_at=iso(run.finished_at),
        error=run.error,
        waiting_for=run.waiting_for,
        warnings=list(run.warnings),
    )


def _by(request: Request) -> str:
    return f"API ({address_of(request)})"


def _check(console: Console, request: Request) -> None:
    """Refuse who has not the token; slow down who guesses."""
    address = address_of(request)
    if console.attempts.wait_seconds(address) > 0:
        raise HTTPException(429, "too many wrong tokens or passwords from this address", {"retry-after": "60"})
    token = console.parts.settings.api_token
    if token is None:
        raise HTTPException(401, "there is no API here: API_TOKEN is not set", {"www-authenticate": "Bearer"})
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    right = hmac.compare_digest(given.strip().encode(), token.get_secret_value().encode())
    if scheme.lower() != "bearer" or not right:
        if given:
            console.attempts.failed(address)
        raise HTTPException(
            401, "this needs the header Authorization: Bearer API_TOKEN", {"www-authenticate": "Bearer"}
        )


def _troubles(api: FastAPI, console: Console) -> None:
    def said(status: int, text: str, headers: dict[str, str] | None = None) -> JSONResponse:
        return JSONResponse({"error": text}, status, headers)

    @api.exception_handler(HTTPException)
    def refused(_request: Request, error: HTTPException) -> JSONResponse:
        return said(error.status_code, str(error.detail), dict(error.headers or {}))

    @api.exception_handler(RefusedError)
    def not_done(_request: Request, error: RefusedError) -> JSONResponse:
        return said(error.status, error.text)

    @api.exception_handler(RequestValidationError)
    def not_understood(_request: Request, error: RequestValidationError) -> JSONResponse:
        found = error.errors()[0]
        where = ".".join(str(part) for part in found["loc"])
        return said(400, f"{where}: {found['msg']}")

    @api.exception_handler(SQLAlchemyError)
    def database_away(_request: Request, error: SQLAlchemyError) -> JSONResponse:
        return said(503, words(error, place(console.parts.settings)))
