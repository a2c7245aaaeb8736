"""What the stand-ins answer. Made from the request alone: the same file gives the same text, another file another."""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import wave
from dataclasses import dataclass
from typing import Any

WORDS = [
    "amber",
    "anchor",
    "apple",
    "arrow",
    "autumn",
    "basket",
    "beacon",
    "bridge",
    "bronze",
    "butter",
    "candle",
    "canyon",
    "carbon",
    "castle",
    "cedar",
    "cherry",
    "circle",
    "cloud",
    "copper",
    "coral",
    "cotton",
    "desert",
    "dragon",
    "eagle",
    "ember",
    "engine",
    "falcon",
    "feather",
    "forest",
    "garden",
    "ginger",
    "glacier",
    "granite",
    "harbor",
    "hazel",
    "honey",
    "island",
    "ivory",
    "jasmine",
    "juniper",
    "kettle",
    "ladder",
    "lantern",
    "lemon",
    "linen",
    "magnet",
    "maple",
    "marble",
    "meadow",
    "mirror",
    "needle",
    "olive",
    "orchid",
    "paper",
    "pepper",
    "planet",
    "quartz",
    "river",
    "saddle",
    "silver",
    "thunder",
    "velvet",
    "willow",
]
SECONDS_A_TURN = 4.0
DIMENSION = 192
_RATE_WHERE_UNKNOWN = 32_000  # bytes a second: 16 kHz, mono, two bytes


@dataclass(frozen=True)
class Heard:
    """A file as the stand-ins see it."""

    digest: str
    seconds: float
    silent: bool

    @classmethod
    def of(cls, data: bytes) -> Heard:
        """Length from a WAV header, else from the number of bytes. Silent: samples that are all zero, or none."""
        digest = hashlib.sha256(data).hexdigest()
        try:
            with wave.open(io.BytesIO(data)) as file:
                seconds = file.getnframes() / file.getframerate()
                samples = file.readframes(file.getnframes())
        except (wave.Error, EOFError, ZeroDivisionError):
            seconds, samples = len(data) / _RATE_WHERE_UNKNOWN, data
        return cls(digest, round(seconds, 3), not samples.strip(b"\0"))


def transcription(heard: Heard, language: str | None, model: str) -> dict[str, Any]:
    """OpenAI's verbose_json with words: a segment a turn, its words named by the file's digest."""
    segments: list[dict[str, Any]] = []
    words: list[dict[str, Any]] = []
    for number, (start, end) in enumerate(_turns(heard)):
        texts = [_word(heard.digest, number, k) for k in range(8)]
        step = (end - start) / len(texts)
        for k, text in enumerate(texts):
            at = start + k * step
            words.append({"word": text, "start": round(at, 3), "end": round(at + step, 3), "probability": 0.9})
        segments.append(
            {
                "id": number,
                "seek": 0,
                "start": start,
                "end": end,
                "text": " " + " ".join(texts).capitalize() + ".",
                "tokens": [],
                "temperature": 0.0,
                "avg_logprob": -0.1,
                "compression_ratio": 1.1,
                "no_speech_prob": 0.01,
            },
        )
    return {
        "task": "transcribe",
        "language": language or "en",
        "duration": heard.seconds,
        "text": "".join(segment["text"] for segment in segments).strip(),
        "segments": segments,
        "words": words,
        "model": model,
    }


def diarization(heard: Heard, fewest: int | None, most: int | None, model: str = "stub") -> dict[str, Any]:
    """Turns of four seconds that go round among two speakers, or as many as the limits ask for."""
    speakers = max(fewest or 1, min(most or 2, 2))
    return {
        "model": model,
        "duration": heard.seconds,
        "turns": [
            {"start": start, "end": end, "speaker": f"SPEAKER_{number % speakers:02d}", "overlap": False}
            for number, (start, end) in enumerate(_turns(heard))
        ],
    }


def embedding(heard: Heard, windows: list[dict[str, float]], model: str) -> dict[str, Any]:
    """A unit vector for each window: the same for every turn of one speaker of the file, far from the other's."""
    found: list[dict[str, Any]] = []
    for window in windows:
        start, end = float(window["start"]), float(window["end"])
        if end - start < 0.4:
            found.append({"embedding": None, "reason": "too_short"})
        elif heard.silent:
            found.append({"embedding": None, "reason": "silent"})
        else:
            speaker = int((start + end) / 2 // SECONDS_A_TURN) % 2
            found.append({"embedding": _vector(f"{heard.digest}:{speaker}"), "reason": None})
    return {"model": model, "dimension": DIMENSION, "embeddings": found}


def chat(request: dict[str, Any], model: str) -> dict[str, Any]:
    """An OpenAI chat completion. What was said last comes back: JSON as JSON, numbered lines as they are, else a line."""
    said = _last_said(request)
    prompt = sum(len(_text(message.get("content")).split()) for message in request.get("messages", []))
    content = "ok" if request.get("max_tokens") == 1 else reply(said)
    written = len(content.split())
    return {
        "id": "chatcmpl-" + hashlib.sha256(said.encode()).hexdigest()[:16],
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content},
                "finish_reason": "length" if content == "ok" else "stop",
            },
        ],
        "usage": {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written},
    }


def reply(said: str) -> str:
    """What the stand-in says to a text."""
    value = _json_in(said)
    if value is not None:
        return json.dumps(value, ensure_ascii=False)
    lines = [line for line in said.splitlines() if re.match(r"\s*\[?\d+\]?\s*[:.|)\t]", line)]
    if lines:
        return "\n".join(lines)
    words = said.split()
    return f"A text of {len(words)} words that begins: {' '.join(words[:12])}"


def _turns(heard: Heard) -> list[tuple[float, float]]:
    if heard.silent or heard.seconds <= 0:
        return []
    count = max(1, math.ceil(heard.seconds / SECONDS_A_TURN))
    return [(k * SECONDS_A_TURN, round(min((k + 1) * SECONDS_A_TURN, heard.seconds), 3)) for k in range(count)]


def _word(digest: str, segment: int, place: int) -> str:
    return WORDS[hashlib.sha256(f"{digest}:{segment}:{place}".encode()).digest()[0] % len(WORDS)]


def _vector(seed: str) -> list[float]:
    raw = b"".join(hashlib.sha256(f"{seed}:{block}".encode()).digest() for block in range(DIMENSION // 32))
    values = [byte - 127.5 for byte in raw]
    length = math.sqrt(sum(value * value for value in values))
    return [round(value / length, 6) for value in values]


def _last_said(request: dict[str, Any]) -> str:
    said = [m for m in request.get("messages", []) if isinstance(m, dict) and m.get("role") == "user"]
    return _text(said[-1].get("content")) if said else ""


def _text(content: object) -> str:
    """A message's text; OpenAI lets it be a list of parts too."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _json_in(said: str) -> object | None:
    """The first JSON object or array in a text that is followed by nothing but space or a fence."""
    decoder = json.JSONDecoder()
    for match in re.finditer(r"[\[{]", said):
        try:
            value, end = decoder.raw_decode(said, match.start())
        except ValueError:
            continue
        if value and not said[end:].strip().strip("`").strip():
            found: object = value
            return found
    return None
