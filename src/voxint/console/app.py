"""The console's application: its routes, behind the door, behind the guard that every request passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from redis import RedisError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from voxint.console import metrics
from voxint.console.door import Door
from voxint.console.forms import RefusedError
from voxint.console.guard import Guard
from voxint.console.pages import HERE, Console
from voxint.console.routes import api, gpu, run, runs, settings, sign_in, speakers
from voxint.gpu_phase import totals
from voxint.gpu_phase.wording.figures import sentence
from voxint.work import meter

if TYPE_CHECKING:
    from voxint.wiring import Parts

DEFAULT_PORT = 8080
_STATIC_SECONDS = 300


def make_console(parts: Parts, port: int = DEFAULT_PORT) -> FastAPI:
    """The application over these parts; `port` is where it listens, and tells its cookies from another console's."""
    console = Console(parts, port)
    app = FastAPI(title="Voxint", docs_url=None, redoc_url=None, openapi_url=None)
    # The last one added is the first one passed.
    app.add_middleware(Door, access=parts.access, cookies=console.cookies, away=console.away)
    app.add_middleware(Guard, allowed_hosts=parts.settings.console_allowed_hosts)
    app.mount("/static", Static(directory=HERE / "static"), name="static")
    app.mount("/api/v1", api.make_api(console), name="api")
    for room in (sign_in, runs, run, gpu, speakers, settings):
        room.register(app, console)

    @app.get("/healthz")
    def healthz() -> PlainTextResponse:
        """This process answers. It says nothing of anything else, and needs no sign-in."""
        return PlainTextResponse("ok")

    @app.get("/metrics")
    def prometheus() -> PlainTextResponse:
        """What Prometheus reads. Without Redis the ticks' counts are left out."""
        try:
            ticks = meter.read(parts.publisher.client)
        except (RedisError, OSError):
            ticks = None
        text = metrics.render(metrics.families(console.view(), totals.steps(parts.engine), ticks))
        return PlainTextResponse(text, media_type=metrics.CONTENT_TYPE)

    _troubles(app, console)
    return app


def _troubles(app: FastAPI, console: Console) -> None:
    """What becomes of errors: a page in words, or, for the API, an object."""

    @app.exception_handler(SQLAlchemyError)
    def database_away(_request: Request, error: SQLAlchemyError) -> Response:
        return console.away(error)

    @app.exception_handler(RefusedError)
    def not_done(request: Request, error: RefusedError) -> Response:
        return console.trouble(request, error.status, error.heading, error.text, error.back)

    @app.exception_handler(RequestValidationError)
    def not_understood(request: Request, _error: RequestValidationError) -> Response:
        return console.trouble(
            request, 400, "This address cannot be right", "A value in it is none that this page takes."
        )

    @app.exception_handler(ClientDisconnect)
    def gone(_request: Request, _error: ClientDisconnect) -> Response:
        return JSONResponse({"error": "cut off"}, 400)

    @app.exception_handler(HTTPException)
    def refused(request: Request, error: HTTPException) -> Response:
        heading = "There is no such page" if error.status_code == 404 else "This could not be done"
        return console.trouble(request, error.status_code, heading, sentence(str(error.detail)))


class Static(StaticFiles):
    """The style and the scripts: kept by browsers for a while, and checked by their tags after that."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        """A file, with how long it may be kept."""
        response: Response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers["cache-control"] = f"public, max-age={_STATIC_SECONDS}"
        return response
