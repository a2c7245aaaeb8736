"""What is done from time to time: the watched folder, and deleting what is no longer to be kept."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text

from voxint.db import clock
from voxint.gpu_phase import totals
from voxint.recordings import waste
from voxint.recordings.inbox import Inbox
from voxint.recordings.lifecycle import FilesStayError, NotPossibleError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from voxint.recordings.runs import RunStore
    from voxint.settings import Settings

log = logging.getLogger(__name__)

AT_ONCE = 100
"""Recordings that one round deletes, and whose sources it drops."""


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
        with _going_on("the watched folder"):
            if self._settings.inbox_enabled:
                added = Inbox(self._runs, self._settings.media_root).sweep()
        with _going_on("recordings that are too old"):
            self._delete_old()
        with _going_on("sources that are not kept"):
            self._drop_sources()
        with _going_on("what was deleted"):
            waste.empty(self._engine, self._settings.media_root)
        self._forget_events()
        return added

    def _delete_old(self) -> None:
        if not self._settings.keep_runs_days:
            return
        with self._engine.connect() as connection:
            oldest = clock.read(connection) - timedelta(days=self._settings.keep_runs_days)
            query = "SELECT id FROM run WHERE finished_at < :oldest ORDER BY finished_at LIMIT :most"
            found = connection.execute(text(query), {"oldest": oldest, "most": AT_ONCE}).scalars().all()
        for run_id in found:
            try:
                self._runs.delete(run_id)
            except FilesStayError as error:
                log.warning("%s; it is older than KEEP_RUNS_DAYS", error)
            except NotPossibleError as error:
                log.info("%s", error)
            else:
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
            SELECT run.id, run.folder, result.data ->> 'file' AS file FROM run
            JOIN stage_result result ON result.run_id = run.id AND result.kind = 'acquire'
            WHERE run.status = 'done' AND NOT result.data ? 'dropped' ORDER BY run.id LIMIT :most
        """
        with self._engine.connect() as connection:
            rows = connection.execute(text(query), {"most": AT_ONCE}).all()
        for row in rows:
            with _going_on(f"the source of recording {row.id}"):
                (self._settings.media_root / row.folder / row.file).unlink(missing_ok=True)
                self._note_dropped(row.id)

    def _note_dropped(self, run_id: int) -> None:
        """So that the next rounds come to the recordings behind it."""
        note = "UPDATE stage_result SET data = data || '{\"dropped\": true}' WHERE run_id = :id AND kind = 'acquire'"
        with self._engine.begin() as connection:
            connection.execute(text(note), {"id": run_id})


@contextmanager
def _going_on(what: str) -> Iterator[None]:
    """What the file system refuses is told, and the rest is done all the same."""
    try:
        yield
    except OSError as error:
        log.warning("upkeep could not see to %s: %s", what, error.strerror or type(error).__name__)
