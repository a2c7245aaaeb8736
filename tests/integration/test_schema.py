"""The migrations and the tables agree, and every named rule refuses what breaks it."""

import contextlib

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import CheckConstraint, text
from sqlalchemy.exc import IntegrityError

from voxint.db import migrate
from voxint.db.engine import make_engine
from voxint.db.tables import METADATA

PHASE = "INSERT INTO gpu_phase (phase, phase_since{names}) VALUES ('{phase}', now(){values})"
REQUEST = "INSERT INTO gpu_phase_request (kind, requested_at{names}) VALUES ('{kind}', now(){values})"
RUN = "INSERT INTO run (title, source, folder, created_at, source_kind{names}) VALUES ('t', 's', 'f', now(), '{kind}'{values})"
ITEM = (
    "INSERT INTO work_item (run_id, kind, lane, queued_at, waiting_since{names}) "
    "VALUES (1, '{kind}', '{lane}', now(), now(){values})"
)
EXECUTION = (
    "INSERT INTO stage_execution (work_item_id, run_id, kind, attempt, claim_token, worker, started_at{names}) "
    "VALUES (1, 1, 'acquire', 1, '{token}', 'w', now(){values})"
)

PLACEMENT = (
    "INSERT INTO placement (service, verdict, expected, evidence, why, seen_at{names}) "
    "VALUES ('whisper', '{verdict}', 'cuda', 'device', 'it says so', now(){values})"
)


def phase(which="llm", **more):
    return PHASE.format(phase=which, **columns(more))


def request(kind="release", **more):
    return REQUEST.format(kind=kind, **columns(more))


def run(kind="file", **more):
    return RUN.format(kind=kind, **columns(more))


def item(kind="acquire", lane="gpu", **more):
    return ITEM.format(kind=kind, lane=lane, **columns(more))


def execution(token="x", **more):
    return EXECUTION.format(token=token, **columns(more))


def version(run_id=1, number=1):
    return (
        "INSERT INTO transcript_version (run_id, number, made_at, why, document)"
        f" VALUES ({run_id}, {number}, now(), 'w', '{{}}')"
    )


def voice(run_id=1, seconds=1, speaker_id="NULL"):
    return (
        "INSERT INTO speaker_voice (run_id, label, speaker_id, model, vector, seconds)"
        f" VALUES ({run_id}, 'A', {speaker_id}, 'm', '[]', {seconds})"
    )


def placement(verdict="ok", **more):
    return PLACEMENT.format(verdict=verdict, **columns(more))


def told(run_id=1, attempts=0):
    return f"INSERT INTO run_told (run_id, finished_at, tried_at, attempts) VALUES ({run_id}, now(), now(), {attempts})"


def columns(more):
    return {"names": "".join(f", {name}" for name in more), "values": "".join(f", {value}" for value in more.values())}


BREAKS = {
    "ck_gpu_phase_one_row": phase(id=2),
    "pk_gpu_phase": phase() + "; " + phase(),
    "ck_gpu_phase_phase_is_known": phase("lunch"),
    "ck_gpu_phase_llm_holds_no_lease": phase("llm", lease_id="'a'"),
    "ck_gpu_phase_audio_needs_a_lease": phase("audio"),
    "ck_gpu_phase_ready_only_in_llm": phase("acquiring", llm_ready="true"),
    "ck_gpu_phase_expiry_of_a_lease": phase("acquiring", lease_expires_at="now()"),
    "ck_gpu_phase_failures_not_negative": phase(failures=-1),
    "ck_gpu_phase_last_error_is_short": phase(last_error="repeat('x', 301)"),
    "ck_gpu_phase_request_kind_is_known": request("lunch"),
    "ck_gpu_phase_request_outcome_is_known": request(consumed_at="now()", outcome="'perhaps'"),
    "ck_gpu_phase_request_consumed_with_an_outcome": request(consumed_at="now()"),
    "ck_work_control_one_row": "INSERT INTO work_control (id) VALUES (2)",
    "ck_run_status_is_known": run(status="'lost'"),
    "ck_run_stage_is_known": run(stage="'lunch'"),
    "ck_run_source_kind_is_known": run("telepathy"),
    "ck_run_speakers_min_is_positive": run(speakers_min=0),
    "ck_run_speakers_in_order": run(speakers_min=3, speakers_max=2),
    "ck_run_failed_says_why": run(status="'failed'"),
    "ck_work_item_kind_is_known": item("lunch"),
    "ck_work_item_lane_is_known": item(lane="fast"),
    "ck_work_item_state_is_known": item(state="'asleep'"),
    "ck_work_item_running_has_a_claim": item(state="'running'", heartbeat_at="now()"),
    "ck_work_item_running_has_a_heartbeat": item(state="'running'", claim_token="'x'"),
    "ck_work_item_attempts_not_negative": item(attempts=-1),
    "ck_work_item_progress_is_a_share": item(progress=1.5),
    "fk_work_item_run_id": item().replace("VALUES (1,", "VALUES (999,"),
    "uq_work_item_one_open_kind": item() + "; " + item(),
    "ck_stage_execution_outcome_is_known": execution(ended_at="now()", outcome="'perhaps'"),
    "ck_stage_execution_ended_with_an_outcome": execution(ended_at="now()"),
    "uq_stage_execution_claim_token": execution() + "; " + execution(),
    "fk_stage_execution_work_item_id": execution().replace("VALUES (1, 1,", "VALUES (999, 1,"),
    "fk_stage_execution_run_id": execution().replace("VALUES (1, 1,", "VALUES (1, 999,"),
    "ck_stage_result_kind_is_known": (
        "INSERT INTO stage_result (run_id, kind, data, made_at) VALUES (1, 'lunch', '{}', now())"
    ),
    "pk_stage_result": "; ".join(
        ["INSERT INTO stage_result (run_id, kind, data, made_at) VALUES (1, 'acquire', '{}', now())"] * 2
    ),
    "ck_transcript_version_number_is_positive": version(number=0),
    "fk_transcript_version_run_id": version(run_id=999),
    "ck_speaker_name_says_something": "INSERT INTO speaker (name, created_at) VALUES ('  ', now())",
    "ck_speaker_voice_seconds_not_negative": voice(seconds=-1),
    "fk_speaker_voice_run_id": voice(run_id=999),
    "fk_speaker_voice_speaker_id": voice(speaker_id=999),
    "ck_placement_verdict_is_known": placement("perhaps"),
    "ck_placement_restarts_not_negative": placement(restarts=-1, starting_since="now()"),
    "ck_placement_restarts_of_a_start": placement(restarts=1),
    "pk_placement": placement() + "; " + placement(),
    "ck_placement_baseline_rate_is_positive": (
        "INSERT INTO placement_baseline (service, rate, unit, made_at) VALUES ('whisper', 0, 'characters', now())"
    ),
    "ck_console_password_one_row": "INSERT INTO console_password (id, hash, set_at) VALUES (2, 'h', now())",
    "ck_run_told_attempts_not_negative": told(attempts=-1),
    "fk_run_told_run_id": told(run_id=999),
    "fk_stage_result_run_id": (
        "INSERT INTO stage_result (run_id, kind, data, made_at) VALUES (999, 'acquire', '{}', now())"
    ),
}


def test_the_migrations_make_the_tables_that_the_code_knows(engine):
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True, "target_metadata": METADATA}
        )
        assert compare_metadata(context, METADATA) == []


def test_the_comparison_sees_a_difference(engine):
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE run ADD COLUMN colour text"))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"target_metadata": METADATA})
        assert compare_metadata(context, METADATA)


def test_the_migrated_database_has_the_very_rules_of_the_code(engine):
    with engine.connect() as connection:
        stored = {
            name
            for (name,) in connection.execute(
                text("SELECT conname FROM pg_constraint WHERE contype = 'c' AND connamespace = 'public'::regnamespace")
            )
        }
    declared = {
        str(rule.name)
        for table in METADATA.tables.values()
        for rule in table.constraints
        if isinstance(rule, CheckConstraint)
    }
    assert stored == declared


def test_every_rule_is_tried_below(engine):
    with engine.connect() as connection:
        stored = {
            name
            for (name,) in connection.execute(
                text(
                    "SELECT conname FROM pg_constraint WHERE contype IN ('c', 'f', 'u') "
                    "AND connamespace = 'public'::regnamespace AND conrelid <> 'alembic_version'::regclass"
                )
            )
        }
    assert stored - set(BREAKS) == set()


@pytest.mark.parametrize("rule", sorted(BREAKS))
def test_a_rule_refuses_what_breaks_it(engine, rule):
    with engine.begin() as connection:
        connection.execute(text(run()))
        connection.execute(text(item("finalize", "post")))
    with engine.connect() as connection, pytest.raises(IntegrityError) as caught:
        connection.execute(text(BREAKS[rule]))
    assert caught.value.orig.diag.constraint_name == rule


def test_an_upgrade_of_an_empty_database_reaches_the_newest_revision_and_can_be_repeated(empty_database_url):
    engine = make_engine(empty_database_url)
    try:
        assert migrate.current(engine) is None
        assert migrate.upgrade(engine) == migrate.newest()
        assert migrate.upgrade(engine) == migrate.newest()
    finally:
        engine.dispose()


def test_an_upgrade_leaves_the_connections_their_limits(empty_database_url):
    engine = make_engine(empty_database_url)
    try:
        migrate.upgrade(engine)
        assert engine.pool.checkedin() >= 2  # the one that kept others out, and the one that migrated
        with contextlib.ExitStack() as opened:
            kept = [opened.enter_context(engine.connect()) for _ in range(engine.pool.checkedin())]
            for name, limit in (("statement_timeout", "30s"), ("lock_timeout", "10s")):
                shown = [connection.execute(text(f"SHOW {name}")).scalar_one() for connection in kept]
                assert shown == [limit] * len(kept)
    finally:
        engine.dispose()
