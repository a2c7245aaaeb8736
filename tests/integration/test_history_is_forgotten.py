"""KEEP_EVENTS_DAYS: the oldest changes of phase go, and no counter falls."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import text

from voxint.gpu_phase import totals
from voxint.settings import load_settings
from voxint.wiring import Parts

YEAR = timedelta(days=365)


@pytest.fixture
def history(engine, monkeypatch):
    """Fifty changes of phase, one a month back from now, and two requests."""
    monkeypatch.setattr(totals, "KEPT_EVENTS", 5)
    with engine.begin() as connection:
        for months in range(50, 0, -1):
            connection.execute(
                text(
                    "INSERT INTO gpu_phase_event (at, from_phase, to_phase, cause, seconds) VALUES"
                    " (voxint_now() - make_interval(days => :days), :before, 'audio', 'services_ready', 10)"
                ),
                {"days": 30 * months, "before": None if months == 50 else "starting_services"},
            )
        for days in (700, 1):
            connection.execute(
                text(
                    "INSERT INTO gpu_phase_request (kind, requested_at, consumed_at, outcome) VALUES"
                    " ('release', voxint_now() - make_interval(days => :days),"
                    " voxint_now() - make_interval(days => :days), 'met')"
                ),
                {"days": days},
            )


def count(engine, table):
    with engine.begin() as connection:
        return connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()


def test_the_oldest_go_and_the_sums_stay(engine, history):
    before = totals.steps(engine)
    assert [(step.times, step.seconds) for step in before] == [(49, 490.0)]
    assert totals.forget(engine, YEAR) == 38
    assert count(engine, "gpu_phase_event") == 12
    assert count(engine, "gpu_phase_request") == 1
    assert totals.steps(engine) == before
    assert totals.forget(engine, YEAR) == 0
    assert totals.forget(engine, timedelta(days=100)) == 7, "the newest five stay, however old they are"
    assert totals.steps(engine) == before


def test_upkeep_does_it_as_the_settings_say(engine, database_url, history, tmp_path):
    for days, left in (("0", 50), ("", 12)):
        environ = {"DATABASE_URL": database_url, "MEDIA_ROOT": str(tmp_path), "KEEP_EVENTS_DAYS": days}
        parts = Parts(load_settings(environ))
        try:
            parts.upkeep.run()
        finally:
            parts.close()
        assert count(engine, "gpu_phase_event") == left
