"""The voices that are known across recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import Path as Part
from fastapi import Request
from fastapi.responses import Response

from voxint.console import views
from voxint.console.forms import Form, RefusedError
from voxint.gpu_phase.wording.figures import sentence
from voxint.recordings.roster import NoSpeakerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import FastAPI

    from voxint.console.pages import Console

_MOST_DIGITS = 18
"""The database's numbers have 19 at most."""
SpeakerId = Annotated[int, Part(ge=1, le=1 << 62)]


def register(app: FastAPI, console: Console) -> None:
    """Put the routes on the application."""
    roster = console.parts.roster

    @app.get("/speakers")
    def speakers(request: Request) -> Response:
        rows = views.speaker_rows(roster.list(), roster.heard_in(), None)
        return console.render(request, "speakers.html", page="speakers", rows=rows)

    @app.post("/speakers/{speaker_id}/name")
    def rename(request: Request, speaker_id: SpeakerId, fields: Form) -> Response:
        name = " ".join(fields.get("name", "").split())
        _change(lambda: roster.rename(speaker_id, name))
        console.note(request, f"named speaker {speaker_id}")
        said = f"Speaker {speaker_id} is {name}. The transcripts have a new version with the name."
        return console.then(request, "/speakers", said)

    @app.post("/speakers/{speaker_id}/merge")
    def merge(request: Request, speaker_id: SpeakerId, fields: Form) -> Response:
        into = fields.get("into", "")
        if not into.isdecimal() or len(into) > _MOST_DIGITS:
            raise RefusedError(422, "This could not be done", "Choose who they really are.", back="/speakers")
        _change(lambda: roster.merge(speaker_id, int(into)))
        console.note(request, f"merged speaker {speaker_id} into {into}")
        return console.then(request, "/speakers", f"Speaker {speaker_id} is now part of speaker {into}.")


def _change(step: Callable[[], None]) -> None:
    try:
        step()
    except (NoSpeakerError, ValueError) as error:
        raise RefusedError(422, "This could not be done", sentence(str(error)), back="/speakers") from None
