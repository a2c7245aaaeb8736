"""OpenAI's transcription call: multipart in; json, text, srt, vtt or verbose_json out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, File, Form, Request, UploadFile
from starlette.responses import JSONResponse, PlainTextResponse, Response

from voxint_models.audio import parts
from voxint_models.whisper.heard import Heard, Recognizer, Segment, Wish

if TYPE_CHECKING:
    from voxint_models.serving.service import Cancel, Service

Format = Literal["json", "text", "srt", "verbose_json", "vtt"]
Granularity = Literal["segment", "word"]


def routes(service: Service[Recognizer]) -> APIRouter:
    """POST /v1/audio/transcriptions and GET /v1/models."""
    router = APIRouter()

    @router.get("/v1/models")
    def models() -> JSONResponse:
        entry = {"id": service.engine.model, "object": "model", "created": 0, "owned_by": "voxint"}
        return JSONResponse({"object": "list", "data": [entry]})

    @router.post("/v1/audio/transcriptions")
    async def transcriptions(
        *,
        request: Request,
        file: Annotated[UploadFile, File()],
        language: Annotated[str | None, Form()] = None,
        prompt: Annotated[str | None, Form(max_length=4_000)] = None,
        response_format: Annotated[Format, Form()] = "json",
        temperature: Annotated[float | None, Form(ge=0, le=1)] = None,
        granularities: Annotated[list[Granularity] | None, Form(alias="timestamp_granularities[]")] = None,
        vad_filter: Annotated[bool, Form()] = True,
    ) -> Response:
        kinds: set[Granularity] = set(granularities) if granularities else {"segment"}
        wish = Wish(
            language=None if not language or language == "auto" else language.lower(),
            prompt=prompt or None,
            temperature=temperature,
            words="word" in kinds and response_format == "verbose_json",
            voice_filter=vad_filter,
        )

        def work(engine: Recognizer, cancel: Cancel) -> Heard:
            return engine.hear(parts(file.file, service.options.audio_seconds), wish, cancel)

        heard = await service.infer(request, "transcribe", work)
        return _answer(heard, response_format, kinds, service.engine.model)

    return router


def _answer(heard: Heard, response_format: Format, kinds: set[Granularity], model: str) -> Response:
    match response_format:
        case "json":
            return JSONResponse({"text": heard.text})
        case "text":
            return PlainTextResponse(heard.text + "\n")
        case "srt":
            return PlainTextResponse("".join(_cue(k, s, ",") for k, s in enumerate(heard.segments, 1)))
        case "vtt":
            return PlainTextResponse("WEBVTT\n\n" + "".join(_cue(None, s, ".") for s in heard.segments))
        case "verbose_json":
            return JSONResponse(verbose(heard, kinds) | {"model": model})


def verbose(heard: Heard, kinds: set[Granularity]) -> dict[str, Any]:
    """OpenAI's verbose_json: segments and words stand beside each other, each where it was asked for."""
    answer: dict[str, Any] = {
        "task": "transcribe",
        "language": heard.language,
        "duration": heard.duration,
        "text": heard.text,
    }
    if "segment" in kinds:
        answer["segments"] = [_segment(number, segment) for number, segment in enumerate(heard.segments)]
    if "word" in kinds:
        answer["words"] = [
            {"word": word.text.strip(), "start": word.start, "end": word.end, "probability": word.probability}
            for segment in heard.segments
            for word in segment.words
        ]
    return answer


def _segment(number: int, segment: Segment) -> dict[str, Any]:
    return {
        "id": number,
        "seek": 0,
        "start": segment.start,
        "end": segment.end,
        "text": segment.text,
        "tokens": list(segment.tokens),
        "temperature": segment.temperature,
        "avg_logprob": segment.average_log_probability,
        "compression_ratio": segment.compression_ratio,
        "no_speech_prob": segment.no_speech_probability,
    }


def _cue(number: int | None, segment: Segment, point: str) -> str:
    """A subtitle; a blank line or an arrow in the text would end it early."""
    text = " ".join(segment.text.split()).replace("-->", "->")
    head = "" if number is None else f"{number}\n"
    return f"{head}{_clock(segment.start, point)} --> {_clock(segment.end, point)}\n{text}\n\n"


def _clock(moment: float, point: str) -> str:
    millis = round(moment * 1000)
    return f"{millis // 3_600_000:02d}:{millis // 60_000 % 60:02d}:{millis // 1000 % 60:02d}{point}{millis % 1000:03d}"
