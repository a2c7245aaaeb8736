"""POST /v1/embed: a recording and stretches of it in, a voice vector for each out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, File, Form, Request, UploadFile
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from starlette.responses import JSONResponse, Response

from voxint_models.audio import RATE, Samples, Whole, as_samples, whole
from voxint_models.serving.errors import BadRequestError
from voxint_models.titanet.embedder import Embedder, why_not

if TYPE_CHECKING:
    from voxint_models.serving.service import Cancel, Service

MOST_WINDOWS = 4_096
LONGEST_SECONDS = 30.0
"""Of a longer window its middle is taken: more of the same voice tells no more of it, and costs."""


class Window(BaseModel):
    """A stretch of the recording, in seconds from its beginning."""

    start: float = Field(ge=0, allow_inf_nan=False)
    end: float = Field(ge=0, allow_inf_nan=False)


_Windows = TypeAdapter(list[Window])


def routes(service: Service[Embedder]) -> APIRouter:
    """The one call."""
    router = APIRouter()

    @router.post("/v1/embed")
    async def embed(
        request: Request,
        file: Annotated[UploadFile, File()],
        windows: Annotated[str, Form()],
    ) -> Response:
        wanted = _read(windows)

        def work(engine: Embedder, cancel: Cancel) -> dict[str, Any]:
            recording = whole(file.file, service.options.audio_seconds)
            found = []
            for window in wanted:
                cancel.check()
                found.append(_one(engine, as_samples(cut(recording, window))))
            return {"model": engine.model, "dimension": engine.dimension, "embeddings": found}

        return JSONResponse(await service.infer(request, "embed", work))

    return router


def cut(samples: Whole, window: Window) -> Whole:
    """The window's samples, as far as the recording goes; of a very long one its middle."""
    start, end = window.start, min(window.end, len(samples) / RATE)
    if end - start > LONGEST_SECONDS:
        middle = (start + end) / 2
        start, end = middle - LONGEST_SECONDS / 2, middle + LONGEST_SECONDS / 2
    return samples[int(start * RATE) : int(end * RATE)]


def _one(engine: Embedder, samples: Samples) -> dict[str, Any]:
    reason = why_not(samples)
    if reason is not None:
        return {"embedding": None, "reason": reason}
    return {"embedding": [round(float(value), 6) for value in engine.embed(samples)], "reason": None}


def _read(windows: str) -> list[Window]:
    """Raises BadRequestError where the text is no list of windows."""
    try:
        found = _Windows.validate_json(windows)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "it"
        raise BadRequestError(f"windows must be JSON, a list of {{start, end}}: {where}: {first['msg']}") from None
    if len(found) > MOST_WINDOWS:
        raise BadRequestError(f"{len(found)} windows were asked for, and at most {MOST_WINDOWS} are taken")
    return found
