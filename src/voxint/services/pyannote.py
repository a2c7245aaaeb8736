"""The client of the diarizer: who spoke when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxint.services.heard import Diarization, Turn
from voxint.services.model_call import ModelCall, ServiceError
from voxint.services.numbers import number, records

if TYPE_CHECKING:
    import threading
    from datetime import timedelta
    from pathlib import Path

    from voxint.settings import ServiceSettings


class PyannoteClient:
    """Asks one diarizer.

    Args:
        service: where it answers.
        total: the limit on one whole call.
    """

    def __init__(self, service: ServiceSettings, total: timedelta) -> None:
        self._call = ModelCall(service.name, service.url.rstrip("/") + "/v1/diarize", total)

    def diarize(
        self,
        audio: Path,
        *,
        fewest: int | None = None,
        most: int | None = None,
        lost: threading.Event | None = None,
    ) -> Diarization:
        """Tell the speakers apart.

        Raises:
            ExchangeError, ServiceError: see ModelCall.post.
        """
        form = {
            name: str(value) for name, value in (("min_speakers", fewest), ("max_speakers", most)) if value is not None
        }
        with audio.open("rb") as file:
            document = self._call.post({"file": ("audio.wav", file, "audio/wav")}, form, lost)
        return diarization_in(document)


def diarization_in(document: dict[str, Any]) -> Diarization:
    """A diarization document as a value. Turns without times or with none left are passed over.

    Raises:
        ServiceError: it has no list of turns.
    """
    if not isinstance(document.get("turns"), list):
        raise ServiceError("pyannote answered 200 without a list of turns")
    turns = [turn for each in records(document["turns"]) if (turn := _turn(each)) is not None]
    model = document.get("model")
    return Diarization(
        duration_seconds=number(document.get("duration")),
        turns=tuple(sorted(turns, key=lambda turn: (turn.start, turn.end))),
        model=model if isinstance(model, str) else None,
    )


def _turn(record: dict[str, Any]) -> Turn | None:
    start, end = number(record.get("start")), number(record.get("end"))
    if start is None or end is None or end <= start or start < 0:
        return None
    return Turn(start, end, str(record.get("speaker") or "unknown"), record.get("overlap") is True)
