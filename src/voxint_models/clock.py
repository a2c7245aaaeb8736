"""The model servers' own clock. They have no database to ask: what they stamp is for people and for comparing."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """This host's moment, aware and UTC."""
    return datetime.now(UTC)  # noqa: TID251 - a model server has no database; its stamps order its own ledger lines


def stamp() -> str:
    """The moment as ISO 8601 with milliseconds, as ledger and health answers carry it."""
    return now().isoformat(timespec="milliseconds")
