"""The tables. A rule that the data must obey stands here as a constraint, named after the rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

if TYPE_CHECKING:
    from collections.abc import Iterable

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

PHASES = (
    "llm",
    "draining_post",
    "acquiring",
    "starting_services",
    "audio",
    "draining",
    "stopping_services",
    "releasing",
    "error",
)


def _one_of(column: str, values: Iterable[str]) -> str:
    listed = ", ".join(f"'{value}'" for value in values)
    return f"{column} IN ({listed})"


def _moment(name: str, *, nullable: bool = True) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


GPU_PHASE = Table(
    "gpu_phase",
    METADATA,
    Column("id", SmallInteger, primary_key=True, server_default=text("1")),
    Column("phase", Text, nullable=False),
    _moment("phase_since", nullable=False),
    Column("lease_id", Text),
    _moment("lease_expires_at"),
    Column("lease_lost", Boolean, nullable=False, server_default=text("false")),
    Column("last_error", Text),
    Column("failures", Integer, nullable=False, server_default=text("0")),
    _moment("retry_after"),
    Column("cycle_failed", Boolean, nullable=False, server_default=text("false")),
    Column("llm_ready", Boolean, nullable=False, server_default=text("false")),
    _moment("llm_checked_at"),
    _moment("llm_silent_since"),
    Column("note", Text),
    _moment("ticked_at"),
    Column("version", BigInteger, nullable=False, server_default=text("1")),
    CheckConstraint("id = 1", name="one_row"),
    CheckConstraint(_one_of("phase", PHASES), name="phase_is_known"),
    CheckConstraint("phase <> 'llm' OR lease_id IS NULL", name="llm_holds_no_lease"),
    CheckConstraint(
        "phase NOT IN ('starting_services', 'audio', 'draining') OR lease_id IS NOT NULL", name="audio_needs_a_lease"
    ),
    CheckConstraint("NOT llm_ready OR phase = 'llm'", name="ready_only_in_llm"),
    CheckConstraint("lease_id IS NOT NULL OR (lease_expires_at IS NULL AND NOT lease_lost)", name="expiry_of_a_lease"),
    CheckConstraint("failures >= 0", name="failures_not_negative"),
    CheckConstraint("char_length(last_error) <= 300", name="last_error_is_short"),
)
"""Who owns the GPU. At most one row; none means that the phase task has never run."""

GPU_PHASE_REQUEST = Table(
    "gpu_phase_request",
    METADATA,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("kind", Text, nullable=False),
    Column("made_in", Text),
    _moment("requested_at", nullable=False),
    Column("requested_by", Text, nullable=False, server_default=text("''")),
    _moment("consumed_at"),
    Column("outcome", Text),
    CheckConstraint(_one_of("kind", ("audio-now", "release")), name="kind_is_known"),
    CheckConstraint(_one_of("outcome", ("acted", "met", "superseded")), name="outcome_is_known"),
    CheckConstraint("(consumed_at IS NULL) = (outcome IS NULL)", name="consumed_with_an_outcome"),
)
"""What operators asked for. Apart from the row: recording one must work without it and must not touch it."""
Index("ix_gpu_phase_request_pending", GPU_PHASE_REQUEST.c.id, postgresql_where=text("consumed_at IS NULL"))

GPU_PHASE_EVENT = Table(
    "gpu_phase_event",
    METADATA,
    Column("id", BigInteger, Identity(), primary_key=True),
    _moment("at", nullable=False),
    Column("from_phase", Text),
    Column("to_phase", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("reason", Text),
    Column("seconds", Float),
    Column("lease_id", Text),
    Column("gpu_waiting", Integer),
    Column("gpu_running", Integer),
    Column("post_waiting", Integer),
    Column("post_running", Integer),
)
"""Every change of phase, written in the transaction that changes it: from, to, why, and how long `from` lasted."""
Index("ix_gpu_phase_event_at", GPU_PHASE_EVENT.c.at)

GPU_PHASE_TOTAL = Table(
    "gpu_phase_total",
    METADATA,
    Column("from_phase", Text, primary_key=True),
    Column("to_phase", Text, primary_key=True),
    Column("cause", Text, primary_key=True),
    Column("times", BigInteger, nullable=False),
    Column("seconds", Float, nullable=False),
)
"""The changes of phase that are no longer kept one by one, summed up: counters must not fall."""

WORK_CONTROL = Table(
    "work_control",
    METADATA,
    Column("id", SmallInteger, primary_key=True, server_default=text("1")),
    _moment("paused_at"),
    Column("paused_by", Text),
    _moment("hold_until"),
    Column("hold_by", Text),
    CheckConstraint("id = 1", name="one_row"),
)
"""What operators set and take back: a paused GPU queue, a hold on switches. One row, made by the migration."""

RUN_STATUSES = ("queued", "running", "done", "failed", "cancelled")
STAGES = ("acquire", "prepare", "transcribe", "diarize_embed", "enhance_match", "finalize")
JOBS = ("run_assets", "translation", "speaker_research")

RUN = Table(
    "run",
    METADATA,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("title", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("source_kind", Text, nullable=False),
    Column("status", Text, nullable=False, server_default=text("'queued'")),
    Column("stage", Text, nullable=False, server_default=text("'acquire'")),
    Column("error", Text),
    Column("warnings", JSONB, nullable=False, server_default=text("'[]'::jsonb")),
    Column("language", Text),
    Column("speakers_min", Integer),
    Column("speakers_max", Integer),
    Column("folder", Text, nullable=False),
    Column("sha256", Text),
    Column("duration_seconds", Float),
    _moment("created_at", nullable=False),
    _moment("finished_at"),
    CheckConstraint(_one_of("status", RUN_STATUSES), name="status_is_known"),
    CheckConstraint(_one_of("stage", STAGES), name="stage_is_known"),
    CheckConstraint(_one_of("source_kind", ("file", "upload", "url")), name="source_kind_is_known"),
    CheckConstraint("speakers_min IS NULL OR speakers_min >= 1", name="speakers_min_is_positive"),
    CheckConstraint(
        "speakers_max IS NULL OR speakers_min IS NULL OR speakers_max >= speakers_min", name="speakers_in_order"
    ),
    CheckConstraint("status <> 'failed' OR error IS NOT NULL", name="failed_says_why"),
)
"""One recording on its way. `folder` is its own folder below MEDIA_ROOT; results stand there as files."""
Index("ix_run_created_at", RUN.c.created_at)
Index("ix_run_finished_at", RUN.c.finished_at, postgresql_where=text("finished_at IS NOT NULL"))
Index("ix_run_sha256", RUN.c.sha256, postgresql_where=text("sha256 IS NOT NULL"))

WORK_STATES = ("queued", "running", "done", "failed", "cancelled")

WORK_ITEM = Table(
    "work_item",
    METADATA,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("run_id", BigInteger, ForeignKey("run.id", ondelete="CASCADE"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("lane", Text, nullable=False),
    Column("state", Text, nullable=False, server_default=text("'queued'")),
    Column("begun", Boolean, nullable=False, server_default=text("false")),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    _moment("queued_at", nullable=False),
    _moment("waiting_since", nullable=False),
    _moment("not_before"),
    Column("claim_token", Text),
    Column("claimed_by", Text),
    _moment("claimed_at"),
    _moment("heartbeat_at"),
    Column("progress", Float),
    Column("error", Text),
    _moment("finished_at"),
    Column("options", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    CheckConstraint(_one_of("kind", STAGES + JOBS), name="kind_is_known"),
    CheckConstraint(_one_of("lane", ("gpu", "post")), name="lane_is_known"),
    CheckConstraint(_one_of("state", WORK_STATES), name="state_is_known"),
    CheckConstraint("(state = 'running') = (claim_token IS NOT NULL)", name="running_has_a_claim"),
    CheckConstraint("state <> 'running' OR heartbeat_at IS NOT NULL", name="running_has_a_heartbeat"),
    CheckConstraint("attempts >= 0", name="attempts_not_negative"),
    CheckConstraint("progress IS NULL OR (progress >= 0 AND progress <= 1)", name="progress_is_a_share"),
)
"""One stage of a run, or one job: what the gate hands out. The claim token guards every write of a worker."""
Index(
    "ix_work_item_queued",
    WORK_ITEM.c.lane,
    WORK_ITEM.c.begun,
    WORK_ITEM.c.id,
    postgresql_where=text("state = 'queued'"),
)
Index("ix_work_item_running", WORK_ITEM.c.lane, WORK_ITEM.c.heartbeat_at, postgresql_where=text("state = 'running'"))
Index(
    "uq_work_item_one_open_kind",
    WORK_ITEM.c.run_id,
    WORK_ITEM.c.kind,
    unique=True,
    postgresql_where=text("state IN ('queued', 'running')"),
)

STAGE_EXECUTION = Table(
    "stage_execution",
    METADATA,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("work_item_id", BigInteger, ForeignKey("work_item.id", ondelete="CASCADE"), nullable=False),
    Column("run_id", BigInteger, ForeignKey("run.id", ondelete="CASCADE"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("claim_token", Text, nullable=False, unique=True),
    Column("worker", Text, nullable=False),
    _moment("started_at", nullable=False),
    _moment("ended_at"),
    Column("outcome", Text),
    Column("detail", Text),
    CheckConstraint(
        _one_of("outcome", ("done", "failed", "not_now", "cut", "abandoned", "cancelled")), name="outcome_is_known"
    ),
    CheckConstraint("(ended_at IS NULL) = (outcome IS NULL)", name="ended_with_an_outcome"),
)
"""One row a claim: what happened to a recording, and who did it."""
Index("ix_stage_execution_run_id", STAGE_EXECUTION.c.run_id)

STAGE_RESULT = Table(
    "stage_result",
    METADATA,
    Column("run_id", BigInteger, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("data", JSONB, nullable=False),
    _moment("made_at", nullable=False),
    CheckConstraint(_one_of("kind", STAGES + JOBS), name="kind_is_known"),
)
"""What a stage made, written in the transaction that ends it, under its claim. Large media stay files."""

TRANSCRIPT_VERSION = Table(
    "transcript_version",
    METADATA,
    Column("run_id", BigInteger, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    _moment("made_at", nullable=False),
    Column("why", Text, nullable=False),
    Column("document", JSONB, nullable=False),
    CheckConstraint("number >= 1", name="number_is_positive"),
)
"""A transcript as it was frozen: by the pipeline, and again where a speaker is named. A version never changes."""

SPEAKER = Table(
    "speaker",
    METADATA,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("name", Text),
    _moment("created_at", nullable=False),
    CheckConstraint("char_length(btrim(name)) BETWEEN 1 AND 100", name="name_says_something"),
)
"""A voice that is known across recordings; without a name until somebody gives one."""

SPEAKER_VOICE = Table(
    "speaker_voice",
    METADATA,
    Column("run_id", BigInteger, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    Column("label", Text, primary_key=True),
    Column("speaker_id", BigInteger, ForeignKey("speaker.id", ondelete="SET NULL")),
    Column("model", Text, nullable=False),
    Column("vector", JSONB, nullable=False),
    Column("seconds", Float, nullable=False),
    CheckConstraint("seconds >= 0", name="seconds_not_negative"),
)
"""One speaker's voice in one recording. No speaker_id: the voice is too like several, or not like enough to tell."""
Index("ix_speaker_voice_speaker_id", SPEAKER_VOICE.c.speaker_id)

ALERT = Table(
    "alert",
    METADATA,
    Column("code", Text, primary_key=True),
    Column("text", Text, nullable=False),
    _moment("since", nullable=False),
    _moment("ended_at"),
    Column("told", Boolean, nullable=False, server_default=text("false")),
    _moment("tried_at"),
)
"""A fault that holds, or one that is over and of which somebody must still be told so. `told` is about the newest."""

PLACEMENT_VERDICTS = ("ok", "wrong", "slow", "unknown", "not_expected")

PLACEMENT = Table(
    "placement",
    METADATA,
    Column("service", Text, primary_key=True),
    Column("verdict", Text, nullable=False),
    Column("expected", Text, nullable=False),
    Column("device", Text),
    Column("evidence", Text, nullable=False),
    Column("why", Text, nullable=False),
    _moment("seen_at", nullable=False),
    _moment("starting_since"),
    Column("restarts", Integer, nullable=False, server_default=text("0")),
    CheckConstraint(_one_of("verdict", PLACEMENT_VERDICTS), name="verdict_is_known"),
    CheckConstraint("restarts >= 0", name="restarts_not_negative"),
    CheckConstraint("restarts = 0 OR starting_since IS NOT NULL", name="restarts_of_a_start"),
)
"""On which device each model service was last seen. `restarts` counts those of the start that began at `starting_since`."""

PLACEMENT_BASELINE = Table(
    "placement_baseline",
    METADATA,
    Column("service", Text, primary_key=True),
    Column("rate", Float, nullable=False),
    Column("unit", Text, nullable=False),
    _moment("made_at", nullable=False),
    CheckConstraint("rate > 0", name="rate_is_positive"),
)
"""How fast a service works on this host's own GPU, in units a second."""

CONSOLE_PASSWORD = Table(
    "console_password",
    METADATA,
    Column("id", SmallInteger, primary_key=True, server_default=text("1")),
    Column("hash", Text, nullable=False),
    Column("first_hash", Text),
    _moment("set_at", nullable=False),
    CheckConstraint("id = 1", name="one_row"),
)
"""The console's password. `first_hash` is of the CONSOLE_PASSWORD that was taken in last: only another one is new."""

CONSOLE_SESSION = Table(
    "console_session",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("who", Text, nullable=False),
    Column("address", Text, nullable=False),
    _moment("made_at", nullable=False),
    _moment("used_at", nullable=False),
    Column("word", JSONB),
)
"""Who is signed in. `id` is the hash of the token that the browser holds; `word` is what its next page says."""

CONSOLE_LINK = Table(
    "console_link",
    METADATA,
    Column("id", Text, primary_key=True),
    _moment("made_at", nullable=False),
)
"""Links that sign in once. `id` is the hash of the token in the link."""

CONSOLE_RECORD = Table(
    "console_record",
    METADATA,
    Column("id", BigInteger, Identity(), primary_key=True),
    _moment("at", nullable=False),
    Column("who", Text, nullable=False),
    Column("what", Text, nullable=False),
)
"""What people did in the console, and over its API."""

RUN_TOLD = Table(
    "run_told",
    METADATA,
    Column("run_id", BigInteger, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    Column("finished_at", DateTime(timezone=True), primary_key=True),
    _moment("tried_at", nullable=False),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("told", Boolean, nullable=False, server_default=text("false")),
    CheckConstraint("attempts >= 0", name="attempts_not_negative"),
)
"""Of which end of a recording RUN_WEBHOOK_URL was told. A recording that is requeued ends again."""
