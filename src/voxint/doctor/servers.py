"""Checks of the two servers: PostgreSQL, reachable and migrated, and Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from redis import RedisError
from sqlalchemy.exc import SQLAlchemyError

from voxint.db import migrate
from voxint.db.trouble import place, words
from voxint.doctor.finding import Finding, Severity
from voxint.gpu_phase.reasons import clean

if TYPE_CHECKING:
    from voxint.doctor.checks import Surroundings
    from voxint.settings import Settings


def database(around: Surroundings) -> list[Finding]:
    """Reachable, and at this version's schema."""
    settings = around.parts.settings
    try:
        current = migrate.current(around.parts.engine)
    except SQLAlchemyError as error:
        return [Finding("database", Severity.FAIL, words(error, place(settings)))]
    newest = migrate.newest()
    where = place(settings)
    if current == newest:
        if around.database_problem is not None:
            return [Finding("database", Severity.FAIL, around.database_problem)]
        return [Finding("database", Severity.OK, f"{where}, schema {current}")]
    if current is None:
        return [Finding("database", Severity.FAIL, f"{where} has no schema yet: run `voxint db upgrade`")]
    if current > newest:
        text = f"{where} has schema {current}, which is newer than this version's {newest}: update this Voxint"
        return [Finding("database", Severity.FAIL, text)]
    text = f"{where} has schema {current}, this version needs {newest}: run `voxint db upgrade`"
    return [Finding("database", Severity.FAIL, text)]


def redis(around: Surroundings) -> list[Finding]:
    """Reachable. It only wakes workers up: without it work waits for it, and nothing is lost."""
    where = redis_place(around.parts.settings)
    try:
        around.parts.publisher.client.ping()
    except (RedisError, OSError) as error:
        text = f"cannot reach Redis at {where}: {clean(str(error)) or type(error).__name__}. No work begins meanwhile"
        return [Finding("redis", Severity.FAIL, text)]
    return [Finding("redis", Severity.OK, where)]


def redis_place(settings: Settings) -> str:
    """Redis's address without user and password."""
    parts = urlsplit(settings.redis_url.get_secret_value())
    if parts.hostname is None:
        return parts.path or "REDIS_URL"
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.hostname}{port}{parts.path}"
