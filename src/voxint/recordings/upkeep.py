"""What is done from time to time: the watched folder, and deleting what is no longer to be kept."""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text

from voxint.db import clock
from voxint.gpu_phase import totals
from voxint.recordings import waste
from voxint.recordings.inbox import Inbox
from voxint.recordings.lifecycle import NotPossibleError

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from voxint.recordings.runs import RunStore
    from voxint.settings import Settings

log = logging.getLogger(__name__)

AT_ONCE = 100
"""Recordings that one round deletes."""


class Upkeep:
    """One round of upkeep; each part goes on where another cannot.

    Args:
        engine: the database.
        runs: the recordings.
        settings: what is kept, and for how long.
    """

    def __init__(self, engine: Engine, runs: RunStore, settings: Settings) -> None:
        self._engine = engine
        self._runs = runs
        self._settings = settings

    def run(self) -> int:
        """Do it; gives how many recordings were added from the watched folder."""
        added = 0
        try:
            if self._settings.inbox_enabled:
                added = Inbox(self._runs, self._settings.media_root).sweep()
            self._delete_old()
            self._drop_sources()
            waste.empty(self._engine, self._settings.media_root)
            self._forget_events()
        except OSError as error:
            log.warning("upkeep of the media folder: %s", error.strerror or type(error).__name__)
        return added

    def _delete_old(self) -> None:
        if not self._settings.keep_runs_days:
            return
        with self._engine.connect() as connection:
            oldest = clock.read(connection) - timedelta(days=self._settings.keep_runs_days)
            query = "SELECT id FROM run WHERE finished_at < :oldest ORDER BY finished_at LIMIT :most"
            found = connection.execute(text(query), {"oldest": oldest, "most": AT_ONCE}).scalars().all()
        for run_id in found:
            with suppress(NotPossibleError):
                self._runs.delete(run_id)
                log.info("recording %d was deleted: it is older than KEEP_RUNS_DAYS", run_id)

    def _forget_events(self) -> None:
        if self._settings.keep_events_days:
            gone = totals.forget(self._engine, timedelta(days=self._settings.keep_events_days))
            if gone:
                log.info("%d changes of phase were older than KEEP_EVENTS_DAYS: their sums stay", gone)

    def _drop_sources(self) -> None:
        """The recordings' own files, where they are not kept: of those that are done, no stage needs them again."""
        if self._settings.keep_source:
            return
        query = """
            SELECT run.folder, result.data ->> 'file' AS file FROM run
            JOIN stage_result result ON result.run_id = run.id AND result.kind = 'acquire'
            WHERE run.status = 'done' ORDER BY run.id DESC LIMIT :most
        """
        with self._engine.connect() as connection:
            rows = connection.execute(text(query), {"most": AT_ONCE}).all()
        for row in rows:
            (self._settings.media_root / row.folder / row.file).unlink(missing_ok=True)
