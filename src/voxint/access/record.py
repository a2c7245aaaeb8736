"""The record of what people did in the console and over its API: who, when, what. Entries are never changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import insert, select

from voxint.db import clock
from voxint.db.tables import CONSOLE_RECORD
from voxint.storable import storable_text

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Engine

TEXT_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that somebody did."""

    at: datetime
    who: str
    what: str


class Record:
    """The record in the database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def note(self, who: str, what: str) -> None:
        """Write down what somebody did, or tried to do."""
        with self._engine.begin() as connection:
            connection.execute(
                insert(CONSOLE_RECORD).values(
                    at=clock.read(connection),
                    who=storable_text(who)[:TEXT_CHARACTERS],
                    what=storable_text(what)[:TEXT_CHARACTERS],
                )
            )

    def newest(self, limit: int = 200) -> tuple[Entry, ...]:
        """The newest entries first."""
        columns = CONSOLE_RECORD.c
        with self._engine.connect() as connection:
            rows = connection.execute(
                select(columns.at, columns.who, columns.what).order_by(columns.id.desc()).limit(limit)
            ).all()
        return tuple(Entry(*row) for row in rows)
