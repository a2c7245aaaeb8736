"""One small request to a service that says "healthy" before its model is loaded.

Such a service would fail, or take minutes, in the first recording's hands, and nothing could be seen of its device. The
request goes on in a thread of its own, as it may compile kernels for more than a minute, which no tick waits for.
"""

from __future__ import annotations

import io
import math
import struct
import threading
import wave
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING

from voxint.gpu_phase.reasons import clean
from voxint.services.exchange import AbandonedError, Ask, ExchangeError, exchange
from voxint.services.model_call import said_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from voxint.services.exchange import Answer
    from voxint.settings import ServiceSettings

LIMIT = timedelta(minutes=10)
"""Longest first request: without a kept cache, a new GPU compiled for 75 s in one."""

SENTENCE = "The model is loaded by reading this short sentence aloud, once, before the first recording."
_AT_ONCE_SECONDS = 0.5
_SPEECH_BYTES = 16 << 20
_TEXT_BYTES = 1 << 20
_RATE = 16_000


class WarmUps:
    """The first requests that are on their way. Lives with the process that ticks; one that starts anew asks again.

    Args:
        send: makes the request; send_first_request by default.
        patience_seconds: how long a look waits for an answer that may come at once.
    """

    def __init__(
        self,
        send: Callable[[ServiceSettings, threading.Event], Answer] | None = None,
        patience_seconds: float = _AT_ONCE_SECONDS,
    ) -> None:
        self._send = send or send_first_request
        self._patience = patience_seconds
        self._going: dict[str, _WarmUp] = {}

    def waits_for(self, service: ServiceSettings, turn: str) -> str | None:
        """Begin, or look after, the first request of a service.

        Args:
            service: the service; one without a warm-up waits for nothing.
            turn: names this start of it. In another turn it is asked again.

        Returns:
            What is still waited for, in words; None once its model has answered.
        """
        if service.warm_up == "none":
            return None
        going = self._going.get(service.name)
        if going is None or going.turn != turn or going.failed or not going.alive:
            trouble = going.words if going is not None and going.turn == turn else ""
            if going is not None:
                going.abandon()
            going = self._going[service.name] = _WarmUp(service, turn, self._send, trouble)
        going.wait(self._patience)
        return None if going.done else going.words


class _WarmUp:
    def __init__(
        self,
        service: ServiceSettings,
        turn: str,
        send: Callable[[ServiceSettings, threading.Event], Answer],
        trouble: str,
    ) -> None:
        self.turn = turn
        self.done = False
        self.failed = ""
        self._before = trouble
        self._began = monotonic()
        self._lost = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(service, send), name=f"voxint first request of {service.name}", daemon=True
        )
        self._thread.start()

    def _run(self, service: ServiceSettings, send: Callable[[ServiceSettings, threading.Event], Answer]) -> None:
        try:
            answer = send(service, self._lost)
            if answer.status == 200 and answer.body:
                self.done = True
            else:
                said = said_in(answer)
                self.failed = f"its first request was answered {answer.status}" + (f": {said}" if said else "")
        except AbandonedError:
            self.failed = "its first request was given up"
        except ExchangeError as error:
            self.failed = f"its first request failed: {error}"
        finally:
            self._ended.set()

    @property
    def alive(self) -> bool:
        """Whether it has ended, or goes on. A thread does not survive a fork."""
        return self._ended.is_set() or self._thread.is_alive()

    @property
    def words(self) -> str:
        """What is waited for, or what went wrong."""
        if self.failed:
            return clean(self.failed)
        going = f"its model is loading: first request, {monotonic() - self._began:.0f} s so far"
        return clean(f"{going}; {self._before}" if self._before and "so far" not in self._before else going)

    def wait(self, seconds: float) -> None:
        """Wait for its end, a little."""
        self._ended.wait(seconds)

    def abandon(self) -> None:
        """Nobody wants it any more."""
        self._lost.set()


def send_first_request(service: ServiceSettings, lost: threading.Event) -> Answer:
    """The request itself: a sentence to read, or two seconds of a tone to write down.

    Raises:
        ExchangeError: there was no whole answer.
    """
    base = service.url.rstrip("/")
    if service.warm_up == "speech":
        return exchange(speech(base, SENTENCE, LIMIT), lost)
    form = {"model": service.model, "response_format": "json"}
    files = {"file": ("first.wav", tone(2.0), "audio/wav")}
    ask = Ask("POST", f"{base}/v1/audio/transcriptions", LIMIT, _TEXT_BYTES, data=form, files=files)
    return exchange(ask, lost)


KOKORO_MODEL = "speaches-ai/Kokoro-82M-v1.0-ONNX"
KOKORO_VOICE = "bf_emma"


def speech(base: str, text: str, limit: timedelta) -> Ask:
    """The OpenAI form of a request to read a text aloud, as speaches' Kokoro takes it."""
    wish = {"model": KOKORO_MODEL, "voice": KOKORO_VOICE, "input": text, "response_format": "wav"}
    return Ask("POST", f"{base}/v1/audio/speech", limit, _SPEECH_BYTES * 4, json=wish)


def tone(seconds: float) -> bytes:
    """A quiet 440 Hz tone as a WAV file: 16 kHz, mono, 16 bits."""
    samples = (int(3000 * math.sin(2 * math.pi * 440 * n / _RATE)) for n in range(int(seconds * _RATE)))
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(_RATE)
        file.writeframes(b"".join(struct.pack("<h", sample) for sample in samples))
    return made.getvalue()
