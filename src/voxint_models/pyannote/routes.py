"""POST /v1/diarize: a recording in, turns out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, File, Form, Request, UploadFile
from starlette.responses import JSONResponse, Response

from voxint_models.audio import decode, seconds
from voxint_models.serving.errors import BadRequestError

if TYPE_CHECKING:
    from voxint_models.pyannote.diarizer import Diarizer, SpokenTurn
    from voxint_models.serving.service import Cancel, Service

MOST_SPEAKERS = 64
_Count = Annotated[int | None, Form(ge=1, le=MOST_SPEAKERS)]


def routes(service: Service[Diarizer]) -> APIRouter:
    """The one call."""
    router = APIRouter()

    @router.post("/v1/diarize")
    async def diarize(
        request: Request,
        file: Annotated[UploadFile, File()],
        min_speakers: _Count = None,
        max_speakers: _Count = None,
    ) -> Response:
        if min_speakers and max_speakers and min_speakers > max_speakers:
            raise BadRequestError(f"min_speakers is {min_speakers}, and max_speakers is {max_speakers}, which is fewer")

        def work(engine: Diarizer, cancel: Cancel) -> tuple[float, list[SpokenTurn]]:
            samples = decode(file.file, service.options.audio_seconds)
            return seconds(samples), engine.diarize(samples, min_speakers or 1, max_speakers, cancel)

        duration, turns = await service.infer(request, "diarize", work)
        return JSONResponse(
            {
                "model": service.engine.model,
                "duration": duration,
                "turns": [
                    {
                        "start": round(turn.start, 3),
                        "end": round(min(turn.end, duration), 3),
                        "speaker": turn.speaker,
                        "overlap": turn.overlap,
                    }
                    for turn in turns
                ],
            },
        )

    return router
