"""The console's password, sessions and one-time links in the database. Of tokens only their hashes are kept there."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, insert, select, text, update
from sqlalchemy.dialects import postgresql

from voxint.access import passwords
from voxint.db import clock
from voxint.db.tables import CONSOLE_LINK, CONSOLE_PASSWORD, CONSOLE_SESSION

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sqlalchemy import Connection, Engine

LINK_LASTS = timedelta(minutes=15)
LONGEST = timedelta(days=14)
"""No session outlives this, however much it is used."""
_NOTED_EVERY = timedelta(minutes=1)
NAME_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who signed in. `who` is the name they gave; `address` where they came from."""

    id: str
    who: str
    address: str
    made_at: datetime
    used_at: datetime

    @property
    def by(self) -> str:
        """Who asked for something, for the record."""
        return f"{self.who or 'somebody'} (console, {self.address})"


class Access:
    """Who may come in.

    Args:
        engine: the database.
        idle: after how long without use a session ends.
    """

    def __init__(self, engine: Engine, idle: timedelta) -> None:
        self._engine = engine
        self._idle = idle
        self.endings = 0
        """How often sessions were ended here: who remembers one from before an ending must not go by it."""

    # --- the password ------------------------------------------------------------------------------------------

    def take_setting(self, given: str | None) -> None:
        """Take CONSOLE_PASSWORD in where it is new: as the first password, or in place of the present one.

        A value that was taken in before changes nothing, also when the password was changed on a page since.

        Raises:
            ValueError: it is too short, or too long.
        """
        if given is None:
            return
        stored = self._password()
        if stored is not None and stored.first_hash is not None and passwords.matches(stored.first_hash, given):
            return
        made = passwords.hashed(given)
        self._set(made, first=made)

    def has_password(self) -> bool:
        """Whether anybody can sign in with a password."""
        return self._password() is not None

    def is_password(self, given: str) -> bool:
        """Whether this is the password.

        Raises:
            BusyError: too many are checked at this moment.
        """
        return self.proof(given) is not None

    def proof(self, given: str) -> str | None:
        """What shows `open` that this is the password still; None where it is not.

        Raises:
            BusyError: too many are checked at this moment.
        """
        stored = self._password()
        return stored.hash if stored is not None and passwords.matches(stored.hash, given) else None

    def change_password(self, new: str, *, keep: str) -> None:
        """Set another password. Every session but this one ends.

        Args:
            new: the new password.
            keep: the id of the session that goes on.

        Raises:
            ValueError: it is too short, or too long.
            BusyError: too many are worked out at this moment.
        """
        self._set(passwords.hashed(new), keep=keep)

    def _password(self) -> Any:  # noqa: ANN401 - a row, or None
        with self._engine.connect() as connection:
            return connection.execute(select(CONSOLE_PASSWORD)).one_or_none()

    def _set(self, made: str, *, first: str | None = None, keep: str | None = None) -> None:
        self.endings += 1
        with self._engine.begin() as connection:
            values = {"hash": made, "set_at": clock.read(connection)} | ({"first_hash": first} if first else {})
            connection.execute(
                postgresql.insert(CONSOLE_PASSWORD)
                .values(id=1, **values)
                .on_conflict_do_update(index_elements=[CONSOLE_PASSWORD.c.id], set_=values)
            )
            connection.execute(delete(CONSOLE_SESSION).where(CONSOLE_SESSION.c.id != (keep or "")))

    # --- sessions ----------------------------------------------------------------------------------------------

    def open(self, who: str, address: str, proof: str | None = None) -> str | None:
        """Begin a session; gives its token, which is kept nowhere here.

        Args:
            who: the name that they gave.
            address: where they come from.
            proof: for who came by the password. None is given back where it was changed since.
        """
        token = secrets.token_urlsafe(32)
        with self._engine.begin() as connection:
            if proof is not None:  # the row is held: a change waits, and then ends this session with the others
                stored = select(CONSOLE_PASSWORD.c.hash).with_for_update(read=True)
                if connection.execute(stored).scalar_one_or_none() != proof:
                    return None
            now = clock.read(connection)
            self._tidy(connection, now)
            connection.execute(
                insert(CONSOLE_SESSION).values(
                    id=id_of(token), who=who[:NAME_CHARACTERS], address=address[:100], made_at=now, used_at=now
                )
            )
        return token

    def session(self, token: str, *, used: bool = True) -> Session | None:
        """The session of a token; None where there is none, or it has ended.

        Args:
            token: what the browser sent.
            used: whether this counts as use. A page that refreshes itself is nobody who uses it.
        """
        columns = CONSOLE_SESSION.c
        with self._engine.begin() as connection:
            now = clock.read(connection)
            row = connection.execute(
                select(columns.id, columns.who, columns.address, columns.made_at, columns.used_at).where(
                    columns.id == id_of(token), columns.used_at > now - self._idle, columns.made_at > now - LONGEST
                )
            ).one_or_none()
            if row is None:
                return None
            if used and now - row.used_at > _NOTED_EVERY:
                connection.execute(update(CONSOLE_SESSION).where(columns.id == row.id).values(used_at=now))
        return Session(*row)

    def sessions(self) -> tuple[Session, ...]:
        """Everybody who is signed in, the newest first."""
        columns = CONSOLE_SESSION.c
        with self._engine.begin() as connection:
            self._tidy(connection, clock.read(connection))
            rows = connection.execute(
                select(columns.id, columns.who, columns.address, columns.made_at, columns.used_at).order_by(
                    columns.made_at.desc()
                )
            ).all()
        return tuple(Session(*row) for row in rows)

    def close(self, session_id: str) -> None:
        """End a session."""
        self.endings += 1
        with self._engine.begin() as connection:
            connection.execute(delete(CONSOLE_SESSION).where(CONSOLE_SESSION.c.id == session_id))

    def close_others(self, session_id: str) -> int:
        """End every session but this one; gives how many."""
        self.endings += 1
        with self._engine.begin() as connection:
            return connection.execute(delete(CONSOLE_SESSION).where(CONSOLE_SESSION.c.id != session_id)).rowcount

    def leave_word(self, session_id: str, word: Mapping[str, Any]) -> None:
        """Keep what the next page of a session says: what came of the form before it."""
        with self._engine.begin() as connection:
            connection.execute(
                update(CONSOLE_SESSION).where(CONSOLE_SESSION.c.id == session_id).values(word=dict(word))
            )

    def take_word(self, session_id: str) -> dict[str, Any] | None:
        """What was left for this session, once."""
        query = (
            "UPDATE console_session new SET word = NULL FROM console_session old"
            " WHERE new.id = :id AND old.id = new.id AND old.word IS NOT NULL RETURNING old.word"
        )
        with self._engine.begin() as connection:
            found: dict[str, Any] | None = connection.execute(text(query), {"id": session_id}).scalar_one_or_none()
        return found

    def _tidy(self, connection: Connection, now: datetime) -> None:
        columns = CONSOLE_SESSION.c
        ended = (columns.used_at <= now - self._idle) | (columns.made_at <= now - LONGEST)
        connection.execute(delete(CONSOLE_SESSION).where(ended))
        connection.execute(delete(CONSOLE_LINK).where(CONSOLE_LINK.c.made_at <= now - LINK_LASTS))

    # --- links -------------------------------------------------------------------------------------------------

    def make_link(self) -> str:
        """A token that signs in once, within LINK_LASTS: for those who can run commands here."""
        token = secrets.token_urlsafe(32)
        with self._engine.begin() as connection:
            now = clock.read(connection)
            self._tidy(connection, now)
            connection.execute(insert(CONSOLE_LINK).values(id=id_of(token), made_at=now))
        return token

    def use_link(self, token: str) -> bool:
        """Use a link up. False where there is none, or it was used, or is too old."""
        columns = CONSOLE_LINK.c
        with self._engine.begin() as connection:
            now = clock.read(connection)
            used = connection.execute(
                delete(CONSOLE_LINK).where(columns.id == id_of(token), columns.made_at > now - LINK_LASTS)
            )
        return used.rowcount == 1


def id_of(token: str) -> str:
    """Under what a token is kept: it cannot be turned back into one."""
    return hashlib.sha256(token.encode()).hexdigest()
