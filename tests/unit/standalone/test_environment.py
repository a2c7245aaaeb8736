from pathlib import Path

import pytest

from voxint.settings import load_settings
from voxint.standalone.environment import PORT_NAMES, Plan
from voxint.standalone.home import Home


@pytest.fixture
def plan():
    ports = {name: 20_000 + number for number, name in enumerate(PORT_NAMES)}
    return Plan(Home(Path("/data")), ports, "offline", "postgresql://postgres@/voxint?host=/data/postgres", "unix:///s")


def test_the_settings_are_accepted_and_turn_sharing_on_without_a_gpu(plan):
    settings = load_settings(plan.settings({}, {}))
    assert settings.gpu_phase_enabled
    assert settings.compute_tier == "simulated"
    assert settings.service_control == "process"
    assert set(settings.services) == {"whisper", "pyannote", "titanet"}
    assert settings.services["whisper"].command[-4:] == ("--host", "127.0.0.1", "--port", str(plan.ports["whisper"]))
    assert settings.llm_base_url == f"http://127.0.0.1:{plan.ports['language-model']}/v1"
    assert "too small" in settings.llm_notice


def test_the_user_may_set_numbers_but_not_where_things_are(plan):
    environ = {"GPU_PHASE_TICK_SECONDS": "7", "DATABASE_URL": "postgresql://elsewhere/x", "WORK_ATTEMPTS": "5"}
    made = plan.environment(environ, {})
    settings = load_settings(made)
    assert settings.gpu_phase_tick_seconds == 7
    assert settings.work_attempts == 5
    assert settings.database_url.get_secret_value() == plan.postgres_url


def test_models_share_the_processors_unless_the_user_says_otherwise(plan):
    assert int(plan.settings({}, {})["MODEL_THREADS"]) >= 1
    assert plan.environment({"MODEL_THREADS": "7"}, {})["MODEL_THREADS"] == "7"


def test_a_caller_changes_what_the_user_set(plan):
    settings = plan.settings({"GPU_PHASE_MIN_DWELL_SECONDS": "7"}, {"GPU_PHASE_MIN_DWELL_SECONDS": "0"})
    assert settings["GPU_PHASE_MIN_DWELL_SECONDS"] == "0"


def test_a_secret_file_of_the_user_does_not_collide_with_what_is_decided_here(plan):
    made = plan.environment({"DATABASE_URL_FILE": "/run/secrets/db", "LLM_API_KEY_FILE": "/run/secrets/key"}, {})
    assert "DATABASE_URL_FILE" not in made
    assert made["LLM_API_KEY_FILE"] == "/run/secrets/key"


def test_the_written_file_gives_the_same_settings_back(plan, tmp_path):
    written = Plan(Home(tmp_path), plan.ports, "stand-ins", plan.postgres_url, plan.redis_url)
    settings = written.settings({}, {})
    written.write(settings)
    lines = written.home.environment.read_text().splitlines()
    read = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    assert read == settings
    assert load_settings(read) == load_settings(settings)
    assert written.home.environment.stat().st_mode & 0o777 == 0o600
