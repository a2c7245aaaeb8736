"""Which alerts are active, who was told, and who is to be told that one is over.

The pages' own notices are the source: what is an alert there is one here. The regular worker's sweep looks every half
minute, so that a phase task that has stopped is noticed; the phase task's ticks look too, so that a fault of the phase
is told while every regular worker is busy. Rows in the database keep the two from telling it twice.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text

from voxint.alerts import webhook
from voxint.gpu_phase.status import look
from voxint.gpu_phase.view import iso
from voxint.gpu_phase.wording.notices import Level, notices

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sqlalchemy import Connection, Engine

    from voxint.gpu_phase.view import PhaseView
    from voxint.wiring import Parts

log = logging.getLogger(__name__)

RETRY_AFTER = timedelta(seconds=60)
"""How long a webhook that did not take a message is left alone. A moment that lies further ahead is of a clock that was set
back since."""
NO_PHASE = "no_phase"
LANE_BOUND = 1000


@dataclass(frozen=True, slots=True)
class Message:
    """One thing to tell: that an alert began, or that it is over. `since` is when it began."""

    code: str
    text: str
    since: datetime
    ended_at: datetime | None

    def document(self) -> dict[str, object]:
        """What the webhook gets. `text` is what chat services show."""
        over = self.ended_at is not None
        return {
            "source": "voxint",
            "event": "ended" if over else "raised",
            "code": self.code,
            "text": f"Voxint: over: {self.text}" if over else f"Voxint: {self.text}",
            "since": iso(self.since),
            "ended_at": iso(self.ended_at),
        }


def check(parts: Parts) -> None:
    """Look once, and tell what is new."""
    view = look(parts.phase_store, parts.settings, bound=LANE_BOUND)
    with parts.engine.begin() as connection:
        note(connection, active(view), view.now)
        messages = take(connection, view.now, view.policy.task_max_silence)
    for message in messages:
        tell(parts, message)


def active(view: PhaseView) -> dict[str, str]:
    """The alerts that hold now: their codes and texts. A phase that was never recorded becomes one with time."""
    told = notices(view, None)
    return {notice.code: notice.text for notice in told if notice.level is Level.ALERT or notice.code == NO_PHASE}


def note(connection: Connection, now_active: Mapping[str, str], now: datetime) -> None:
    """Write down which alerts hold. One that nobody was told of, and that is over, is forgotten."""
    for code, words in sorted(now_active.items()):
        connection.execute(
            text(
                "INSERT INTO alert (code, text, since) VALUES (:code, :words, :now) ON CONFLICT (code) DO UPDATE SET"
                " text = excluded.text,"
                # It is back before anybody was told that it was over: then it never was. Where somebody may have been
                # told, it is a new one.
                " told = CASE WHEN alert.ended_at IS NULL THEN alert.told ELSE alert.tried_at IS NULL END,"
                " since = CASE WHEN alert.since > :ahead THEN excluded.since"
                " WHEN alert.ended_at IS NULL OR alert.tried_at IS NULL THEN alert.since"
                " ELSE excluded.since END,"
                " tried_at = CASE WHEN alert.ended_at IS NULL THEN alert.tried_at END,"
                " ended_at = NULL"
            ),
            {"code": code, "words": words, "now": now, "ahead": now + RETRY_AFTER},
        )
    codes = list(now_active)
    connection.execute(
        text("DELETE FROM alert WHERE NOT code = ANY(:codes) AND ended_at IS NULL AND NOT told"), {"codes": codes}
    )
    connection.execute(
        text(
            "UPDATE alert SET ended_at = :now, told = false, tried_at = NULL"
            " WHERE NOT code = ANY(:codes) AND ended_at IS NULL"
        ),
        {"codes": codes, "now": now},
    )


def take(connection: Connection, now: datetime, patience: timedelta) -> list[Message]:
    """What is to be told now; nobody else tells it for a minute.

    Args:
        connection: an open transaction.
        now: its moment.
        patience: how long a phase that was never recorded is waited for.
    """
    rows = connection.execute(
        text(
            "UPDATE alert SET tried_at = :now WHERE code IN (SELECT code FROM alert WHERE NOT told"
            " AND (tried_at IS NULL OR tried_at < :retry OR tried_at > :ahead) AND (code <> :no_phase OR since < :patient)"
            " ORDER BY since FOR UPDATE SKIP LOCKED) RETURNING code, text, since, ended_at"
        ),
        {
            "now": now,
            "retry": now - RETRY_AFTER,
            "ahead": now + RETRY_AFTER,
            "no_phase": NO_PHASE,
            "patient": now - patience,
        },
    ).all()
    return [Message(*row) for row in rows]


def tell(parts: Parts, message: Message) -> None:
    """Log it, send it where a webhook is set, and write down that it was taken."""
    if message.ended_at is None:
        log.error("alert %s: %s", message.code, message.text)
    else:
        log.warning("alert %s is over", message.code)
    address = parts.settings.alert_webhook_url
    problem = webhook.send(address.get_secret_value(), message.document()) if address else None
    if problem is not None:
        log.warning("the alert %s could not be sent: %s", message.code, problem)
        return
    done(parts.engine, message)


def done(engine: Engine, message: Message) -> None:
    """Somebody was told. What is over is forgotten with that."""
    with engine.begin() as connection:
        if message.ended_at is not None:
            connection.execute(
                text("DELETE FROM alert WHERE code = :code AND ended_at = :ended_at"),
                {"code": message.code, "ended_at": message.ended_at},
            )
        else:
            connection.execute(
                text("UPDATE alert SET told = true WHERE code = :code AND since = :since AND ended_at IS NULL"),
                {"code": message.code, "since": message.since},
            )
