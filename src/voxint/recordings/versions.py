"""Transcripts in versions: frozen by the pipeline, frozen anew where a speaker is named, and given out in any form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import insert, select, text

from voxint.db import clock
from voxint.db.tables import TRANSCRIPT_VERSION
from voxint.recordings.exports.document import Transcript
from voxint.recordings.exports.forms import FORMS
from voxint.recordings.titles import file_stem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sqlalchemy import Connection, Engine


class NoTranscriptError(LookupError):
    """There is no such transcript; the message says what there is."""


@dataclass(frozen=True, slots=True)
class Version:
    """One frozen transcript, without its text."""

    number: int
    made_at: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Export:
    """A transcript in one form, as it is given out. `name` is a file name for people."""

    name: str
    media_type: str
    body: bytes


class Transcripts:
    """The frozen transcripts in the database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def latest(self, run_id: int) -> tuple[int, Transcript] | None:
        """The newest version with its number; None before the run is done."""
        with self._engine.connect() as connection:
            return latest(connection, run_id)

    def versions(self, run_id: int) -> tuple[Version, ...]:
        """All versions, the oldest first."""
        table = TRANSCRIPT_VERSION.c
        with self._engine.connect() as connection:
            rows = connection.execute(
                select(table.number, table.made_at, table.why).where(table.run_id == run_id).order_by(table.number)
            ).all()
        return tuple(Version(*row) for row in rows)

    def get(self, run_id: int, number: int) -> Transcript | None:
        """One version."""
        table = TRANSCRIPT_VERSION.c
        with self._engine.connect() as connection:
            row = connection.execute(
                select(table.document).where(table.run_id == run_id, table.number == number)
            ).one_or_none()
        return None if row is None else Transcript.from_document(row.document)

    def export(self, run_id: int, form: str, *, number: int | None = None, language: str | None = None) -> Export:
        """A transcript in a form.

        Args:
            run_id: the recording.
            form: a name of FORMS.
            number: a version; the newest by default.
            language: a translation that was made; the words as spoken by default.

        Raises:
            NoTranscriptError: there is none, or the form is not known.
        """
        if form not in FORMS:
            raise NoTranscriptError(f"there is no form {form!r}: it is one of {', '.join(FORMS)}")
        _, transcript = self.find(run_id, number=number, language=language)
        stem = file_stem(transcript.title) + (f".{language}" if language is not None else "")
        kind = FORMS[form]
        return Export(stem + kind.ending, kind.media_type, kind.write(transcript).encode())

    def find(self, run_id: int, *, number: int | None = None, language: str | None = None) -> tuple[int, Transcript]:
        """A version with its number, in a language.

        Args:
            run_id: the recording.
            number: a version; the newest by default.
            language: a translation that was made; the words as spoken by default.

        Raises:
            NoTranscriptError: there is none.
        """
        if number is None:
            found = self.latest(run_id)
        else:
            given = self.get(run_id, number)
            found = (number, given) if given else None
        if found is None:
            which = "no transcript yet" if number is None else f"no version {number} of its transcript"
            raise NoTranscriptError(f"recording {run_id} has {which}")
        return found if language is None else (found[0], self._translated(run_id, found[1], language))

    def _translated(self, run_id: int, transcript: Transcript, language: str) -> Transcript:
        query = (
            "SELECT data -> 'languages' -> :language FROM stage_result WHERE run_id = :run_id AND kind = 'translation'"
        )
        with self._engine.connect() as connection:
            found = connection.execute(text(query), {"language": language, "run_id": run_id}).scalar_one_or_none()
        if found is None:
            raise NoTranscriptError(f"recording {run_id} has no translation into {language}")
        texts = {int(number): str(each["text"]) for number, each in found["lines"].items()}
        return transcript.in_language(language, texts, f"Translated by a language model ({found['model']}).")


def latest(connection: Connection, run_id: int) -> tuple[int, Transcript] | None:
    """The newest version of a run's transcript, with its number."""
    table = TRANSCRIPT_VERSION.c
    row = connection.execute(
        select(table.number, table.document).where(table.run_id == run_id).order_by(table.number.desc()).limit(1)
    ).one_or_none()
    return None if row is None else (row.number, Transcript.from_document(row.document))


def freeze(connection: Connection, transcript: Transcript, why: str) -> int:
    """Keep a transcript as its run's next version; the same text again is no new one. Gives its number.

    The run's row is locked, so that two who freeze at the same time come one after the other.
    """
    connection.execute(text("SELECT 1 FROM run WHERE id = :id FOR UPDATE"), {"id": transcript.run_id})
    before = latest(connection, transcript.run_id)
    document = transcript.to_document()
    if before is not None and before[1].to_document() == document:
        return before[0]
    number = before[0] + 1 if before else 1
    now = clock.read(connection)
    connection.execute(
        insert(TRANSCRIPT_VERSION).values(
            run_id=transcript.run_id, number=number, made_at=now, why=why, document=document
        )
    )
    return number


def renamed(connection: Connection, run_id: int, names: Mapping[str, str], why: str) -> int | None:
    """Freeze the newest transcript again with other names for its speakers, by label. None where there is none."""
    before = latest(connection, run_id)
    return None if before is None else freeze(connection, before[1].with_names(names), why)
