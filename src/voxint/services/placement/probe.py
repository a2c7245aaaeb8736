"""Times one known request to a service, after one that warms it up, and compares it with this host's own speed.

The text is prose and not one long word, which has few phonemes and looks fast on any device; the sound is speech. A
first request after a container is made anew may compile kernels for more than a minute, and tells nothing: that is
what the warm-up is for.
"""

from __future__ import annotations

import wave
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING

from voxint.gpu_phase.model import Phase
from voxint.services.exchange import exchange
from voxint.services.model_call import ServiceError, said_in
from voxint.services.placement.judge import Expectation, Observation, Timing, judge
from voxint.services.placement.warm_up import speech
from voxint.services.pyannote import PyannoteClient
from voxint.services.titanet import TitanetClient
from voxint.services.whisper import WhisperClient

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from voxint.gpu_phase.view import PhaseView
    from voxint.services.placement.judge import Judgement
    from voxint.settings import ServiceSettings

LIMIT = timedelta(minutes=5)
"""Longest single request of a probe."""

TEXT = (
    "On the last Friday of the month the reading room stays open until nine, and the lamps along the north wall are "
    "lit one after the other. Somebody has left a map of the harbour on the long table, with the old ferry routes "
    "drawn in blue pencil. The librarian asks each visitor whether it is theirs, folds it twice, and puts it into the "
    "drawer beside the window. Outside it begins to rain, first on the roof of the boathouse and then everywhere, and "
    "the last tram of the evening waits a little longer than it must."
)
"""About 500 characters of prose."""

USUAL_ELSEWHERE = "0.5 to 1 s was a GPU and about 6 s a CPU on the host where this was measured first"
_WINDOW_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Measured:
    """One timed request: how much of `unit` in how many seconds, and how long the one before it took."""

    amount: float
    unit: str
    seconds: float
    warm_up_seconds: float

    @property
    def rate(self) -> float:
        """Units a second."""
        return self.amount / max(self.seconds, 1e-6)


def refusal(view: PhaseView) -> str | None:
    """Why no probe may be made now; None where one may.

    It would load a model beside the language model, or be measured under work; and under work it would tell nothing.
    """
    if view.enabled and view.phase is not Phase.AUDIO:
        return (
            f"the GPU is not Voxint's for work (phase {view.phase_name}): a probe is made in the audio phase only. "
            "Ask for it with `voxint gpu-phase audio-now`"
        )
    if view.gpu_lane.running:
        return f"{view.gpu_lane.running} recordings are at work on the GPU: a time taken now would tell nothing"
    if view.enabled and view.gpu_lane.waiting:
        return f"{view.gpu_lane.waiting} recordings are about to begin on the GPU: try again when they are done"
    return None


def measure(service: ServiceSettings, audio: Path | None) -> Measured:
    """Make the two requests.

    Args:
        service: which service; its name, or its warm-up, tells what it understands.
        audio: a WAV file of speech, for services that listen.

    Raises:
        ExchangeError, ServiceError: a request was not answered, or not with what was asked for.
        OSError: the file cannot be read.
    """
    request, amount, unit = _request(service, audio)
    warm_up = _timed(request)
    return Measured(amount, unit, _timed(request), warm_up)


def compared(
    service: str, expected: Expectation, measured: Measured, gpu_rate: float | None, *, tells: bool
) -> Judgement:
    """The verdict that the time alone allows: ok, slow or unknown.

    Args:
        service: its name.
        expected: what is expected of it.
        measured: the timed request.
        gpu_rate: this host's own rate on the GPU; None where none is kept.
        tells: whether nothing else was at work meanwhile.
    """
    timing = Timing(measured.rate, measured.unit, gpu_rate, tells)
    return judge(service, expected, Observation(loaded=True, probe=timing))


def understands(service: ServiceSettings) -> str | None:
    """What is asked of a service in a probe; None where it is not known what it understands."""
    if service.warm_up == "speech":
        return "speech"
    if service.warm_up == "transcription" or service.name == "whisper":
        return "transcription"
    return {"pyannote": "diarization", "titanet": "embedding"}.get(service.name)


def wav_seconds(audio: Path) -> float:
    """The length of a WAV file.

    Raises:
        OSError, wave.Error, EOFError: it cannot be read, or is none.
    """
    with wave.open(str(audio), "rb") as file:
        return file.getnframes() / file.getframerate()


def _request(service: ServiceSettings, audio: Path | None) -> tuple[Callable[[], object], float, str]:
    kind = understands(service)
    if kind == "speech":
        return (lambda: _read_aloud(service)), len(TEXT), "characters"
    if kind is None:
        raise ServiceError(f"it is not known what to ask of {service.name}")
    if audio is None:
        raise ServiceError(f"{service.name} needs a recording to listen to")
    seconds = wav_seconds(audio)
    windows = [(start, start + _WINDOW_SECONDS) for start in range(0, int(seconds - _WINDOW_SECONDS) + 1, 3)]
    calls: dict[str, Callable[[], object]] = {
        "transcription": lambda: WhisperClient(service, LIMIT, service.model).transcribe(audio),
        "diarization": lambda: PyannoteClient(service, LIMIT).diarize(audio),
        "embedding": lambda: TitanetClient(service, LIMIT).embed(audio, windows),
    }
    return calls[kind], seconds, "seconds of sound"


def _read_aloud(service: ServiceSettings) -> None:
    answer = exchange(speech(service.url.rstrip("/"), TEXT, LIMIT))
    if answer.status != 200:
        said = said_in(answer)
        raise ServiceError(f"{service.name} answered {answer.status}" + (f": {said}" if said else ""))
    if not answer.body.startswith(b"RIFF"):
        raise ServiceError(f"{service.name} answered 200 with something that is no WAV file")


def _timed(request: Callable[[], object]) -> float:
    began = monotonic()
    request()
    return monotonic() - began
