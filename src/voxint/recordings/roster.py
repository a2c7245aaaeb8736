"""The roster: voices known across recordings. Matches a recording's voices, and lets people name and merge speakers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, insert, select, text, update

from voxint.db import clock
from voxint.db.tables import RUN, SPEAKER, SPEAKER_VOICE
from voxint.recordings.speakers import Known, matches
from voxint.recordings.titles import title_of
from voxint.recordings.versions import latest, renamed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Engine, Select

    from voxint.recordings.speakers import Voice

_LOCK = 0x766F7873  # "voxs": two recordings of one new voice must not both enter it
NAME_CHARACTERS = 100


class NoSpeakerError(LookupError):
    """There is no such speaker; the message says which was meant."""


@dataclass(frozen=True, slots=True)
class RosterEntry:
    """A speaker as people see them. `seconds` of speech in all; `name` None until somebody gives one."""

    id: int
    name: str | None
    recordings: int
    seconds: float
    last_heard_at: datetime | None


class Roster:
    """The known speakers in the database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list(self) -> tuple[RosterEntry, ...]:
        """Everybody, those with a name first."""
        query = """
            SELECT speaker.id, speaker.name, count(voice.run_id) AS recordings,
                   coalesce(sum(voice.seconds), 0) AS seconds, max(run.created_at) AS heard
            FROM speaker
            LEFT JOIN speaker_voice voice ON voice.speaker_id = speaker.id
            LEFT JOIN run ON run.id = voice.run_id
            GROUP BY speaker.id ORDER BY speaker.name IS NULL, lower(speaker.name), speaker.id
        """
        with self._engine.connect() as connection:
            rows = connection.execute(text(query)).all()
        return tuple(RosterEntry(row.id, row.name, row.recordings, float(row.seconds), row.heard) for row in rows)

    def heard_in(self, newest: int = 3) -> dict[int, tuple[tuple[int, str], ...]]:
        """For every speaker the newest recordings that they are heard in: number and title."""
        query = """
            SELECT speaker_id, run_id, title FROM (
                SELECT voice.speaker_id, run.id AS run_id, run.title,
                       row_number() OVER (PARTITION BY voice.speaker_id ORDER BY run.id DESC) AS place
                FROM (SELECT DISTINCT speaker_id, run_id FROM speaker_voice WHERE speaker_id IS NOT NULL) voice
                JOIN run ON run.id = voice.run_id
            ) heard WHERE place <= :newest ORDER BY speaker_id, run_id DESC
        """
        found: dict[int, tuple[tuple[int, str], ...]] = {}
        with self._engine.connect() as connection:
            for row in connection.execute(text(query), {"newest": newest}):
                found[row.speaker_id] = (*found.get(row.speaker_id, ()), (row.run_id, row.title))
        return found

    def rename(self, speaker_id: int, name: str) -> None:
        """Give a speaker a name; the transcripts in which they speak are frozen anew with it.

        Raises:
            NoSpeakerError: there is none of that number.
            ValueError: the name says nothing.
        """
        clean = speaker_name(name)
        with self._engine.begin() as connection:
            hold_roster(connection)
            changed = connection.execute(update(SPEAKER).where(SPEAKER.c.id == speaker_id).values(name=clean))
            if changed.rowcount == 0:
                raise NoSpeakerError(f"there is no speaker {speaker_id}: `voxint speakers list` shows them")
            _show(connection, speaker_id, clean)

    def merge(self, from_id: int, into_id: int) -> None:
        """Two entries are one person: the first goes, and its voices belong to the second.

        Raises:
            NoSpeakerError: one of them is not there.
            ValueError: they are the same entry.
        """
        if from_id == into_id:
            raise ValueError("a speaker cannot be merged with themselves")
        with self._engine.begin() as connection:
            hold_roster(connection)
            for each in (from_id, into_id):
                if connection.execute(select(SPEAKER.c.id).where(SPEAKER.c.id == each)).one_or_none() is None:
                    raise NoSpeakerError(f"there is no speaker {each}: `voxint speakers list` shows them")
            _hold_runs(connection, select(SPEAKER_VOICE.c.run_id).where(SPEAKER_VOICE.c.speaker_id == from_id))
            given = connection.execute(select(SPEAKER.c.name).where(SPEAKER.c.id == from_id)).scalar_one()
            kept = connection.execute(select(SPEAKER.c.name).where(SPEAKER.c.id == into_id)).scalar_one()
            connection.execute(
                update(SPEAKER_VOICE).where(SPEAKER_VOICE.c.speaker_id == from_id).values(speaker_id=into_id)
            )
            connection.execute(delete(SPEAKER).where(SPEAKER.c.id == from_id))
            name = kept or given
            if name is not None:
                connection.execute(update(SPEAKER).where(SPEAKER.c.id == into_id).values(name=name))
                _show(connection, into_id, str(name))

    def name_in_run(self, run_id: int, label: str, name: str) -> None:
        """Say who one of a recording's speakers is. Their voice is known by that name from now on.

        Raises:
            NoSpeakerError: the recording has no transcript with such a speaker.
            ValueError: the name says nothing.
        """
        clean = speaker_name(name)
        with self._engine.begin() as connection:
            hold_roster(connection)
            _hold_runs(connection, select(RUN.c.id).where(RUN.c.id == run_id))
            voice = connection.execute(
                select(SPEAKER_VOICE.c.speaker_id).where(
                    SPEAKER_VOICE.c.run_id == run_id, SPEAKER_VOICE.c.label == label
                )
            ).one_or_none()
            if voice is not None:
                known = connection.execute(select(SPEAKER.c.id).where(SPEAKER.c.name == clean)).scalars().first()
                owner = known or voice.speaker_id or _enter(connection)
                connection.execute(update(SPEAKER).where(SPEAKER.c.id == owner).values(name=clean))
                connection.execute(
                    update(SPEAKER_VOICE)
                    .where(SPEAKER_VOICE.c.run_id == run_id, SPEAKER_VOICE.c.label == label)
                    .values(speaker_id=owner)
                )
                _forget_unheard(connection)
                _show(connection, int(owner), clean)
            elif not _has(connection, run_id, label):
                raise NoSpeakerError(f"recording {run_id} has no speaker {label}")
            renamed(connection, run_id, {label: clean}, f"{label} is {clean}")


def names_in(connection: Connection, run_id: int) -> dict[str, str]:
    """The names of a recording's speakers, by label, where they have one."""
    rows = connection.execute(
        select(SPEAKER_VOICE.c.label, SPEAKER.c.name)
        .join(SPEAKER, SPEAKER.c.id == SPEAKER_VOICE.c.speaker_id)
        .where(SPEAKER_VOICE.c.run_id == run_id, SPEAKER.c.name.is_not(None))
    ).all()
    return {row.label: row.name for row in rows}


def speaker_name(name: str) -> str:
    """A name on one line, without control characters.

    Raises:
        ValueError: nothing is left of it, or it is too long.
    """
    clean = title_of(name, "")
    if not name.strip() or (clean == "recording" and name.strip() != "recording"):
        raise ValueError("a name must say something")
    if len(clean) > NAME_CHARACTERS:
        raise ValueError(f"a name may have {NAME_CHARACTERS} characters")
    return clean


def enter(connection: Connection, run_id: int, model: str, voices: Sequence[Voice]) -> dict[str, dict[str, Any]]:
    """Match a recording's voices with the roster, and enter those that are new, in an open transaction.

    Gives for each label that has a voice: speaker_id (None where unsure), name, known, likeness. A second call for the
    same run takes the place of the first.
    """
    hold_roster(connection)
    connection.execute(delete(SPEAKER_VOICE).where(SPEAKER_VOICE.c.run_id == run_id))
    _forget_unheard(connection)
    found: dict[str, dict[str, Any]] = {}
    for label, match in matches(voices, model, _known(connection, model)).items():
        speaker_id = match.speaker.id if match.speaker else _enter(connection) if match.is_new else None
        found[label] = {
            "speaker_id": speaker_id,
            "name": match.speaker.name if match.speaker else None,
            "known": match.speaker is not None,
            "likeness": round(match.likeness, 4),
        }
    for voice in voices:
        if voice.vector is not None:
            connection.execute(
                insert(SPEAKER_VOICE).values(
                    run_id=run_id,
                    label=voice.label,
                    speaker_id=found[voice.label]["speaker_id"],
                    model=model,
                    vector=[round(value, 6) for value in voice.vector],
                    seconds=voice.seconds,
                )
            )
    return found


def _has(connection: Connection, run_id: int, label: str) -> bool:
    found = latest(connection, run_id)
    return found is not None and label in found[1].speakers


def _known(connection: Connection, model: str) -> list[Known]:
    rows = connection.execute(
        select(SPEAKER.c.id, SPEAKER.c.name, SPEAKER_VOICE.c.vector)
        .join(SPEAKER_VOICE, SPEAKER_VOICE.c.speaker_id == SPEAKER.c.id)
        .where(SPEAKER_VOICE.c.model == model)
        .order_by(SPEAKER.c.id)
    ).all()
    voices: dict[int, tuple[str | None, list[tuple[float, ...]]]] = {}
    for row in rows:
        voices.setdefault(row.id, (row.name, []))[1].append(tuple(row.vector))
    return [Known(number, name, tuple(vectors)) for number, (name, vectors) in voices.items()]


def hold_roster(connection: Connection) -> None:
    """Keep everybody else from changing the roster until the transaction ends."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


def _hold_runs(connection: Connection, numbers: Select[tuple[int]]) -> None:
    """Lock runs before their voices, as a deletion does: the other way round the two would wait for each other."""
    connection.execute(select(RUN.c.id).where(RUN.c.id.in_(numbers)).order_by(RUN.c.id).with_for_update()).all()


def _enter(connection: Connection) -> int:
    made = insert(SPEAKER).values(created_at=clock.read(connection)).returning(SPEAKER.c.id)
    return int(connection.execute(made).scalar_one())


def _forget_unheard(connection: Connection) -> None:
    """Entries without a name and without a voice left say nothing of anybody."""
    connection.execute(
        text(
            "DELETE FROM speaker WHERE name IS NULL"
            " AND NOT EXISTS (SELECT 1 FROM speaker_voice WHERE speaker_voice.speaker_id = speaker.id)"
        )
    )


def _show(connection: Connection, speaker_id: int, name: str) -> None:
    """Freeze the transcripts in which a speaker is heard anew, with the name."""
    heard = connection.execute(
        select(SPEAKER_VOICE.c.run_id, SPEAKER_VOICE.c.label)
        .where(SPEAKER_VOICE.c.speaker_id == speaker_id)
        .order_by(SPEAKER_VOICE.c.run_id)
    ).all()
    for row in heard:
        renamed(connection, row.run_id, {row.label: name}, f"{row.label} is {name}")
