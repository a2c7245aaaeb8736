"""The client of the voice encoder: a vector for each stretch of one voice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from voxint.services.heard import Embedding, Embeddings
from voxint.services.model_call import ModelCall, ServiceError
from voxint.services.numbers import number

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence
    from datetime import timedelta
    from pathlib import Path

    from voxint.settings import ServiceSettings


class TitanetClient:
    """Asks one voice encoder.

    Args:
        service: where it answers.
        total: the limit on one whole call.
    """

    def __init__(self, service: ServiceSettings, total: timedelta) -> None:
        self._call = ModelCall(service.name, service.url.rstrip("/") + "/v1/embed", total)

    def embed(
        self, audio: Path, windows: Sequence[tuple[float, float]], *, lost: threading.Event | None = None
    ) -> Embeddings:
        """A vector for each window, given as (start, end) in seconds.

        Raises:
            ExchangeError, ServiceError: see ModelCall.post.
        """
        asked = json.dumps([{"start": round(start, 3), "end": round(end, 3)} for start, end in windows])
        with audio.open("rb") as file:
            document = self._call.post({"file": ("audio.wav", file, "audio/wav")}, {"windows": asked}, lost)
        return embeddings_in(document, len(windows))


def embeddings_in(document: dict[str, Any], asked: int) -> Embeddings:
    """An embedding document as a value.

    Raises:
        ServiceError: it does not hold as many vectors as were asked for, or they differ in length.
    """
    listed = document.get("embeddings")
    if not isinstance(listed, list) or len(listed) != asked:
        raise ServiceError(f"titanet did not answer with one embedding for each of {asked} windows")
    vectors = tuple(_embedding(each) for each in listed)
    if len({len(each.vector) for each in vectors if each.vector is not None}) > 1:
        raise ServiceError("titanet answered with vectors of different lengths")
    return Embeddings(str(document.get("model") or "unknown"), vectors)


def _embedding(item: Any) -> Embedding:  # noqa: ANN401 - whatever stands in the list
    reason = None
    if isinstance(item, dict):
        reason = str(item["reason"]) if item.get("reason") else None
        item = item.get("embedding", item.get("vector"))
    if not isinstance(item, list) or not item:
        return Embedding(None, reason or "none given")
    values = [number(each) for each in item]
    if None in values or not any(values):
        return Embedding(None, reason or "not a usable vector")
    return Embedding(tuple(value for value in values if value is not None))
