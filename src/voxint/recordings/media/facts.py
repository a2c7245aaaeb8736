"""PURE: what a look at a media file's headers says, and the rules for what can be worked on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from voxint.storable import storable_text

DEMUXERS = (
    "aac,ac3,aiff,amr,ape,asf,au,avi,caf,eac3,flac,flv,matroska,mov,mp3,mpeg,mpegts,mxf,nut,ogg,"
    "tta,w64,wav,wavpack,wv,webm"
)
"""The containers that are opened, by the names of FFmpeg's demuxers. Playlists and the like are not among them: they
would make the decoder open other files, or addresses."""

LONGEST_SECONDS = 24 * 3600.0
"""Longest recording that is taken: a WAV of 16 kHz ends at 37 hours."""


class MediaError(Exception):
    """A file that cannot be worked on; the message says why, in words for people, without paths."""


@dataclass(frozen=True, slots=True)
class MediaFacts:
    """What the headers and first packets say. `track` is the chosen audio stream's index in the container."""

    container: str
    duration_seconds: float | None
    track: int
    track_note: str
    codec: str
    start_offset_seconds: float
    title: str | None
    warnings: tuple[str, ...]

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> MediaFacts:
        """The child's answer as a value."""
        duration = document["duration_seconds"]
        return cls(
            container=str(document["container"]),
            duration_seconds=None if duration is None else float(duration),
            track=int(document["track"]),
            track_note=storable_text(str(document["track_note"])),
            codec=str(document["codec"]),
            start_offset_seconds=float(document["start_offset_seconds"]),
            title=storable_text(str(document["title"])) if document["title"] else None,
            warnings=tuple(storable_text(str(each)) for each in document["warnings"]),
        )


@dataclass(frozen=True, slots=True)
class Track:
    """One audio stream, as far as choosing among them needs it."""

    index: int
    codec: str
    language: str | None
    is_default: bool


def choose(tracks: list[Track]) -> Track:
    """The track that is transcribed: the first one with the container's default flag, else the first.

    Raises:
        MediaError: there is none.
    """
    if not tracks:
        raise MediaError("there is no audio track in it")
    return next((track for track in tracks if track.is_default), tracks[0])


def describe(track: Track, among: int) -> str:
    """The choice in words."""
    language = f" ({track.language})" if track.language else ""
    return f"audio track {track.index}{language}, {track.codec}" + (f", one of {among}" if among > 1 else "")
