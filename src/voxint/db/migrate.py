"""Brings the database to the newest schema, one runner at a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_LOCK = 0x766F78  # "vox": two containers that start at once migrate one after the other


class SchemaError(RuntimeError):
    """The database has a schema that this version does not know: a newer one has been at work on it."""


def folder() -> Path:
    """Where the migrations are: in the installed package, or in the repository."""
    packaged = Path(__file__).parent / "migrations"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "migrations"


def upgrade(engine: Engine) -> str:
    """Run what is missing; gives the revision that the database has afterwards.

    Raises:
        SchemaError: a newer version has been at work on it. Nothing is changed.
    """
    with engine.connect() as guard:
        guard.execute(text("SET LOCAL lock_timeout = '120s'"))
        guard.execute(text("SET LOCAL statement_timeout = '180s'"))
        guard.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
        guard.commit()
        try:
            with engine.begin() as connection:
                config = _config()
                _refuse_unknown(connection, config)
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        finally:
            guard.rollback()
            guard.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _LOCK})
            guard.commit()
    return current(engine) or ""


def _refuse_unknown(connection: Connection, config: Config) -> None:
    found = MigrationContext.configure(connection).get_current_revision()
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        msg = f"the database has schema {found}, which is newer than this version's {newest()}: update this Voxint"
        raise SchemaError(msg)


def current(engine: Engine) -> str | None:
    """The database's revision; None when it was never migrated."""
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def newest() -> str:
    """The newest revision that this version knows."""
    return ScriptDirectory.from_config(_config()).get_current_head() or ""


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(folder()))
    config.set_main_option("path_separator", "os")
    return config
