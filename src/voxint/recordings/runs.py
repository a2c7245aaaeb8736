"""The store of runs: add a recording, look at what is there, read what its stages made."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select, text

from voxint.db import clock
from voxint.db.tables import RUN, STAGE_EXECUTION, STAGE_RESULT, WORK_ITEM
from voxint.recordings import waste
from voxint.recordings.address import PUBLIC_ONLY, is_url, name_in, url_for_people
from voxint.recordings.errors import NotAddedError
from voxint.recordings.lifecycle import FilesStayError, NotPossibleError, hold
from voxint.recordings.media.probe import MediaError, probe
from voxint.recordings.rows import RUNS, run_by_id, run_from
from voxint.recordings.run import Execution, RunDetail, SpeakerRange
from voxint.recordings.stages.order import FIRST_LANE, FIRST_STAGE
from voxint.recordings.titles import language_code, title_of
from voxint.services.download import look
from voxint.services.exchange import ExchangeError
from voxint.storable import storable_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, Engine

    from voxint.recordings.media.probe import MediaFacts
    from voxint.recordings.run import Run
    from voxint.services.download import Rules


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds for a recording of which nothing else is said: a language code (None: the model tells), speakers."""

    language: str | None = None
    speakers: SpeakerRange = field(default_factory=SpeakerRange)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A source that can be added."""

    source: str
    kind: str
    name: str
    duration_seconds: float | None = None
    warnings: tuple[str, ...] = ()


class RunStore:
    """The recordings in the database.

    Args:
        engine: the database.
        media_root: the folder below which every run has its own.
        rules: what may be fetched from addresses.
        look_into: reads a media file's headers; a child process by default.
        defaults: language and speakers of recordings that are added without.
    """

    def __init__(
        self,
        engine: Engine,
        media_root: Path,
        rules: Rules = PUBLIC_ONLY,
        look_into: Callable[[Path], MediaFacts] = probe,
        defaults: Defaults | None = None,
    ) -> None:
        self._engine = engine
        self._media_root = media_root
        self._rules = rules
        self._look_into = look_into
        self._defaults = defaults or Defaults()

    def add(
        self,
        source: str | Path,
        *,
        title: str | None = None,
        language: str | None = None,
        speakers: str | SpeakerRange | None = None,
        uploaded: bool = False,
    ) -> Run:
        """Look at a recording, and queue it.

        Args:
            source: a media file's path, or, as text, an http or https address.
            title: how it is shown; the file's name where it is not given.
            language: a language code such as `en`; `auto` lets the model tell; None is the default of the settings.
            speakers: `3` or `2-4`; None is the default of the settings.
            uploaded: the file was put there for us, and is taken away once it is taken in.

        Raises:
            NotAddedError: it is no recording that can be worked on; nothing was queued.
        """
        try:
            code = self._defaults.language if language is None else language_code(language)
            spoken = speakers if isinstance(speakers, SpeakerRange) else self._speakers(speakers)
        except ValueError as error:
            raise NotAddedError(str(error)) from None
        seen = self._seen(source, uploaded=uploaded)
        with self._engine.begin() as connection:
            run_id = self._insert(
                connection,
                title=title_of(title, seen.name),
                source=seen.source,
                source_kind=seen.kind,
                language=code,
                speakers_min=spoken.fewest,
                speakers_max=spoken.most,
                duration_seconds=seen.duration_seconds,
                warnings=list(seen.warnings),
            )
            run = run_by_id(connection, self._media_root, run_id)
        if run is None:
            raise NotAddedError("the recording was taken away while it was added")
        return run

    def _speakers(self, told: str | None) -> SpeakerRange:
        return self._defaults.speakers if told is None else SpeakerRange.parse(told)

    def _seen(self, source: str | Path, *, uploaded: bool) -> _Seen:
        if isinstance(source, str) and is_url(source):
            try:
                remote = look(source, self._rules)
            except ExchangeError as error:
                raise NotAddedError(f"cannot add {url_for_people(source)}: {error}") from None
            return _Seen(source, "url", name_in(remote.url))
        path, facts = self._look_at(source)
        kind = "upload" if uploaded else "file"
        return _Seen(str(path), kind, path.stem, facts.duration_seconds, facts.warnings)

    def _look_at(self, source: str | Path) -> tuple[Path, MediaFacts]:
        path = Path(source).absolute()
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise NotAddedError(f"cannot add {path.name!a}: its name is not UTF-8: rename it") from None
        try:
            if not path.is_file():
                why = "it is no plain file" if path.exists() else "there is no such file"
                raise NotAddedError(f"cannot add {path}: {why}")
            return path, self._look_into(path)
        except MediaError as error:
            raise NotAddedError(f"cannot add {path.name}: {error}") from None
        except OSError as error:
            raise NotAddedError(f"cannot add {path}: {error.strerror or error}") from None

    def _insert(self, connection: Connection, **values: Any) -> int:  # noqa: ANN401 - columns of the run table
        now = clock.read(connection)
        run_id = int(
            connection.execute(text("SELECT nextval(pg_get_serial_sequence('run', 'id'))")).scalar_one(),
        )
        # The random part keeps a media folder that outlives its database from being written over.
        folder = f"runs/{run_id}-{secrets.token_hex(3)}"
        connection.execute(insert(RUN).values(id=run_id, folder=folder, created_at=now, **values))
        connection.execute(
            insert(WORK_ITEM).values(run_id=run_id, kind=FIRST_STAGE, lane=FIRST_LANE, queued_at=now, waiting_since=now)
        )
        return run_id

    def list(
        self, *, limit: int = 100, before: int | None = None, status: str | None = None, search: str | None = None
    ) -> tuple[Run, ...]:
        """The newest runs first.

        Args:
            limit: how many at most.
            before: only runs with a smaller number, for the next page.
            status: only runs of this status.
            search: only runs whose title has this in it, in capitals or not.
        """
        query = (
            f"{RUNS} WHERE (CAST(:before AS bigint) IS NULL OR run.id < :before)"
            " AND (CAST(:status AS text) IS NULL OR run.status = :status)"
            " AND (CAST(:search AS text) IS NULL OR strpos(lower(run.title), lower(:search)) > 0)"
            " ORDER BY run.id DESC LIMIT :limit"
        )
        wanted = {"before": before, "status": status, "search": storable_text(search) if search else None}
        with self._engine.connect() as connection:
            rows = connection.execute(text(query), {**wanted, "limit": limit}).all()
        return tuple(run_from(row, self._media_root) for row in rows)

    def get(self, run_id: int) -> Run | None:
        """One run; None where there is none of that number."""
        with self._engine.connect() as connection:
            return run_by_id(connection, self._media_root, run_id)

    def show(self, run_id: int) -> RunDetail | None:
        """One run with all that was done to it, the oldest first."""
        table = STAGE_EXECUTION.c
        with self._engine.connect() as connection:
            run = run_by_id(connection, self._media_root, run_id)
            if run is None:
                return None
            columns = (table.kind, table.attempt, table.worker, table.started_at)
            rows = connection.execute(
                select(*columns, table.ended_at, table.outcome, table.detail)
                .where(table.run_id == run_id)
                .order_by(table.id)
            ).all()
            kinds = connection.execute(
                select(STAGE_RESULT.c.kind)
                .where(STAGE_RESULT.c.run_id == run_id)
                .order_by(STAGE_RESULT.c.made_at, STAGE_RESULT.c.kind)
            ).scalars()
            return RunDetail(run, tuple(Execution(*row) for row in rows), tuple(kinds))

    def results(self, run_id: int) -> dict[str, dict[str, Any]]:
        """What the run's stages and jobs made, by kind."""
        with self._engine.connect() as connection:
            rows = connection.execute(
                select(STAGE_RESULT.c.kind, STAGE_RESULT.c.data).where(STAGE_RESULT.c.run_id == run_id)
            ).all()
        return {row.kind: row.data for row in rows}

    def is_source(self, path: Path) -> bool:
        """Whether a file is the source of a run. One whose name is not UTF-8 is none: it is never added.

        An upload is known by its name, which is its own: the media folder may have another path by now.
        """
        if storable_text(str(path)) != str(path):
            return False
        query = (
            "SELECT EXISTS (SELECT 1 FROM run WHERE source = :source"
            " OR (source_kind = 'upload' AND right(source, length(:name) + 1) = '/' || :name))"
        )
        with self._engine.connect() as connection:
            return bool(connection.execute(text(query), {"source": str(path), "name": path.name}).scalar_one())

    def delete(self, run_id: int) -> None:
        """Take a recording away, with its files and all that was made of it.

        Raises:
            NotPossibleError: there is none, somebody works on it, or its files cannot be taken away.
        """
        with self._engine.begin() as connection:
            hold(connection, run_id)
            row = connection.execute(
                text("SELECT source, source_kind, folder FROM run WHERE id = :id"), {"id": run_id}
            ).one_or_none()
            if row is None:
                raise NotPossibleError(f"there is no recording {run_id}: `voxint runs list` shows those that are there")
            busy = "SELECT EXISTS (SELECT 1 FROM work_item WHERE run_id = :id AND state = 'running')"
            if connection.execute(text(busy), {"id": run_id}).scalar_one():
                raise NotPossibleError(f"recording {run_id} is being worked on: cancel it first")
            connection.execute(text("DELETE FROM run WHERE id = :id"), {"id": run_id})
            try:
                waste.put(self._media_root, row.folder)
            except OSError as error:
                why = error.strerror or type(error).__name__
                raise FilesStayError(f"cannot take the files of recording {run_id} away: {why}") from None
        with suppress(OSError):  # upkeep comes to it again
            waste.empty(self._engine, self._media_root)
        if row.source_kind == "upload":
            with suppress(OSError):
                Path(row.source).unlink(missing_ok=True)
