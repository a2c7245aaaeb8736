"""The console's application: its routes, behind the guard that every request passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

from voxint.console.guard import Guard

if TYPE_CHECKING:
    from voxint.wiring import Parts


def make_console(parts: Parts) -> FastAPI:
    """The application over these parts."""
    app = FastAPI(title="Voxint", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, allowed_hosts=parts.settings.console_allowed_hosts)

    @app.get("/healthz")
    def healthz() -> PlainTextResponse:
        """This process answers. It says nothing of anything else, and needs no sign-in."""
        return PlainTextResponse("ok")

    return app
