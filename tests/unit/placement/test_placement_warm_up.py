"""The first request of a service whose model is loaded by it: in a thread, given up when nobody wants it, tried again."""

from __future__ import annotations

import io
import threading
import wave

import pytest

from voxint.services.exchange import AbandonedError, Answer, DroppedError
from voxint.services.placement.warm_up import WarmUps, tone
from voxint.settings import ServiceSettings, SettingsError, load_settings

SPEACHES = ServiceSettings("speaches", "http://speaches:8000", "/health", (), "speech")
PLAIN = ServiceSettings("whisper", "http://whisper:8000", "/healthz", ())


class Sender:
    """Answers when it is let."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.let = threading.Event()
        self.let.set()
        self.sent = 0
        self.given_up = 0

    def __call__(self, service, lost):
        self.sent += 1
        while not self.let.wait(0.01):
            if lost.is_set():
                self.given_up += 1
                raise AbandonedError
        outcome = self.outcomes.pop(0) if self.outcomes else Answer(200, {}, b"RIFF")
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def at_last_none(warm_ups, turn):
    return any(warm_ups.waits_for(SPEACHES, turn) is None for _ in range(1000))


def test_a_service_without_one_waits_for_nothing():
    sender = Sender()
    assert WarmUps(sender).waits_for(PLAIN, "1") is None
    assert sender.sent == 0


def test_it_is_sent_once_and_then_waited_for():
    sender = Sender()
    sender.let.clear()
    warm_ups = WarmUps(sender, patience_seconds=0.01)
    for _ in range(3):
        assert warm_ups.waits_for(SPEACHES, "1").startswith("its model is loading: first request, ")
    sender.let.set()
    assert at_last_none(warm_ups, "1")
    assert warm_ups.waits_for(SPEACHES, "1") is None
    assert sender.sent == 1


def test_another_start_asks_again_and_gives_the_old_one_up():
    sender = Sender()
    sender.let.clear()
    warm_ups = WarmUps(sender, patience_seconds=0.01)
    warm_ups.waits_for(SPEACHES, "1")
    warm_ups.waits_for(SPEACHES, "2")
    for _ in range(1000):
        if sender.given_up and sender.sent == 2:
            break
        threading.Event().wait(0.02)
    assert (sender.sent, sender.given_up) == (2, 1)
    sender.let.set()
    assert at_last_none(warm_ups, "2")


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Answer(404, {}, b'{"detail": "model not found"}'), "its first request was answered 404: model not found"),
        (Answer(500, {}, b""), "its first request was answered 500"),
        (Answer(200, {}, b""), "its first request was answered 200"),
        (DroppedError("the connection was closed"), "its first request failed: the connection was closed"),
    ],
)
def test_a_failure_is_told_and_tried_again(outcome, words):
    warm_ups = WarmUps(Sender(outcome), patience_seconds=30)
    assert warm_ups.waits_for(SPEACHES, "1") == words
    assert warm_ups.waits_for(SPEACHES, "1") is None


def test_the_tone_is_sixteen_kilohertz_mono():
    with wave.open(io.BytesIO(tone(2.0))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16_000, 1, 2)
        assert file.getnframes() == 32_000
        assert any(file.readframes(100))


def test_settings_of_a_service_that_answers_too_early():
    settings = load_settings({"GPU_PHASE_SERVICES": "whisper,speaches"})
    assert settings.services["speaches"].warm_up == "speech"
    assert settings.services["speaches"].health_url == "http://speaches:8000/health"
    assert settings.services["whisper"].warm_up == "none"
    other = load_settings({"WHISPER_WARM_UP": "transcription", "WHISPER_MODEL": "Systran/faster-whisper-small"})
    assert other.services["whisper"].warm_up == "transcription"
    assert other.services["whisper"].model == "Systran/faster-whisper-small"
    with pytest.raises(SettingsError, match="WHISPER_WARM_UP: must be one of none, speech, transcription"):
        load_settings({"WHISPER_WARM_UP": "hot"})
