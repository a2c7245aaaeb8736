"""OpenAI's chat completions and model list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Body, Request
from starlette.responses import JSONResponse, Response

from voxint_models.language_model.llama import CONTEXT_TOKENS
from voxint_models.serving.errors import BadRequestError

if TYPE_CHECKING:
    from voxint_models.language_model.llama import Llama
    from voxint_models.serving.service import Cancel, Service


def routes(service: Service[Llama]) -> APIRouter:
    """POST /v1/chat/completions and GET /v1/models; both are 503 while the model loads."""
    router = APIRouter()

    @router.get("/v1/models")
    def models() -> JSONResponse:
        entry = {
            "id": service.engine.model,
            "object": "model",
            "created": 0,
            "owned_by": "voxint",
            "meta": {"n_ctx": CONTEXT_TOKENS},
        }
        return JSONResponse({"object": "list", "data": [entry]})

    @router.post("/v1/chat/completions")
    async def chat(request: Request, wanted: Annotated[dict[str, Any], Body()]) -> Response:
        if wanted.get("stream"):
            raise BadRequestError("this small server answers in one piece: leave `stream` away")

        def work(engine: Llama, cancel: Cancel) -> dict[str, Any]:
            return engine.chat(wanted, cancel)

        return JSONResponse(await service.infer(request, "chat", work))

    return router
