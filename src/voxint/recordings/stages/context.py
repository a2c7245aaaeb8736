"""What a stage is given: its run, the settings, what earlier stages made, and the ways to speak while it works."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import select, text

from voxint.db.tables import STAGE_RESULT, WORK_ITEM
from voxint.recordings.errors import ClaimLost, StageFailed
from voxint.recordings.rows import run_by_id
from voxint.storable import storable_text

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from sqlalchemy import Connection, Engine

    from voxint.recordings.run import Run
    from voxint.settings import Settings

_WARNINGS = 50
"""Warnings that one run keeps."""


class ClaimLike(Protocol):
    """The gate's claim, as far as a stage needs it."""

    @property
    def item_id(self) -> int:
        """The piece of work."""

    @property
    def run_id(self) -> int:
        """The recording."""

    @property
    def attempt(self) -> int:
        """Counted from 1."""

    @property
    def token(self) -> str:
        """What guards every write."""


class HeartLike(Protocol):
    """The beating heart of a claim, as far as a stage needs it."""

    @property
    def lost(self) -> threading.Event:
        """Set when the claim is no longer ours."""

    def progress(self, share: float) -> None:
        """Tell how far the work is."""


@dataclass(frozen=True, slots=True)
class ClaimView:
    """The claim as a stage sees it. `last_attempt`: after this one the run fails."""

    token: str
    lost: threading.Event
    attempt: int = 1
    last_attempt: bool = False


class Notes(Protocol):
    """Where a stage writes what belongs to the run itself. Nothing is written once the claim is lost."""

    def warn(self, text: str) -> None:
        """Keep a warning with the run; the same words are kept once."""

    def record(self, *, sha256: str | None = None, duration_seconds: float | None = None) -> None:
        """Keep facts of the recording with the run."""

    def same_recording(self, sha256: str) -> tuple[int, ...]:
        """Earlier runs of the very same bytes."""

    def own(self, connection: Connection) -> None:
        """Hold the claim until the transaction ends, so that what is written there is written by its owner.

        Raises:
            ClaimLost: it was taken back.
        """


@dataclass(frozen=True, slots=True)
class StageContext:
    """One stage's view of its run."""

    run: Run
    settings: Settings
    results: Mapping[str, dict[str, Any]]
    claim: ClaimView
    notes: Notes
    progress: Callable[[float], None] = field(default=lambda _share: None)
    """Tell how far the work is, 0 to 1."""
    engine: Engine | None = None
    """The database, for the stage that matches speakers across recordings."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What a job was asked for."""

    @classmethod
    def load(cls, engine: Engine, settings: Settings, claim: ClaimLike, heart: HeartLike) -> StageContext:
        """Read the run and the earlier results.

        Raises:
            ClaimLost: the run is gone.
        """
        with engine.connect() as connection:
            run = run_by_id(connection, settings.media_root, claim.run_id)
            rows = connection.execute(
                select(STAGE_RESULT.c.kind, STAGE_RESULT.c.data).where(STAGE_RESULT.c.run_id == claim.run_id)
            ).all()
            options = connection.execute(
                select(WORK_ITEM.c.options).where(WORK_ITEM.c.id == claim.item_id)
            ).scalar_one_or_none()
        if run is None or options is None:
            raise ClaimLost
        view = ClaimView(claim.token, heart.lost, claim.attempt, claim.attempt >= settings.work_attempts)
        results = {row.kind: row.data for row in rows}
        return cls(run, settings, results, view, StoredNotes(engine, claim), heart.progress, engine, options)

    def warn(self, words: str) -> None:
        """Keep a warning with the run, where people see it."""
        self.notes.warn(words)

    def check_claim(self) -> None:
        """Stop here if the claim was taken back.

        Raises:
            ClaimLost: it was.
        """
        if self.claim.lost.is_set():
            raise ClaimLost

    @contextmanager
    def owning(self) -> Iterator[Connection | None]:
        """Hold the claim meanwhile: nobody takes it back, cancels or deletes the recording until the body has ended.

        Gives the open transaction; None where there is no database. For moments only, and never during a call.

        Raises:
            ClaimLost: it was taken back.
        """
        if self.engine is None:
            self.check_claim()
            yield None
            return
        with self.engine.begin() as connection:
            self.notes.own(connection)
            yield connection

    def result(self, stage: str) -> dict[str, Any]:
        """What an earlier stage made.

        Raises:
            StageFailed: there is nothing.
        """
        if stage not in self.results:
            raise StageFailed(f"the result of {stage} is missing: requeue the recording from there")
        return self.results[stage]

    def file(self, stage: str, key: str = "file") -> Path:
        """The file that an earlier stage left in the run's folder.

        Raises:
            StageFailed: it is gone.
        """
        path = self.run.folder / str(self.result(stage)[key])
        if not path.is_file():
            raise StageFailed(f"the file that {stage} made is gone from the media folder: {path.name}")
        return path


class StoredNotes:
    """Notes in the database, guarded by the claim token."""

    def __init__(self, engine: Engine, claim: ClaimLike) -> None:
        self._engine = engine
        self._claim = claim

    def warn(self, words: str) -> None:
        """See Notes."""
        self._write(
            "warnings = CASE WHEN warnings ? :words OR jsonb_array_length(warnings) >= :most THEN warnings"
            " ELSE warnings || to_jsonb(CAST(:words AS text)) END",
            {"words": storable_text(words), "most": _WARNINGS},
        )

    def record(self, *, sha256: str | None = None, duration_seconds: float | None = None) -> None:
        """See Notes."""
        self._write(
            "sha256 = coalesce(:sha256, sha256), duration_seconds = coalesce(:seconds, duration_seconds)",
            {"sha256": sha256, "seconds": duration_seconds},
        )

    def same_recording(self, sha256: str) -> tuple[int, ...]:
        """See Notes."""
        query = "SELECT id FROM run WHERE sha256 = :sha256 AND id <> :run_id ORDER BY id LIMIT 5"
        with self._engine.connect() as connection:
            found = connection.execute(text(query), {"sha256": sha256, "run_id": self._claim.run_id}).scalars()
            return tuple(int(each) for each in found)

    def own(self, connection: Connection) -> None:
        """See Notes."""
        owned = connection.execute(
            text("SELECT 1 FROM work_item WHERE id = :id AND claim_token = :token FOR SHARE"),
            {"id": self._claim.item_id, "token": self._claim.token},
        ).one_or_none()
        if owned is None:
            raise ClaimLost

    def _write(self, change: str, values: dict[str, Any]) -> None:
        # The share lock keeps the claim from being taken back between the look and the write.
        with self._engine.begin() as connection:
            self.own(connection)
            query = text(f"UPDATE run SET {change} WHERE id = :run_id")  # noqa: S608 - `change` is one of ours
            connection.execute(query, values | {"run_id": self._claim.run_id})
