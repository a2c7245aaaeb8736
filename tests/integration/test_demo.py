"""`voxint demo` with stand-ins in place of the models: what it prints, leaves and returns, and that a repeat is quick."""

import json
import os
import subprocess
import sys
import time

import pytest
from made_wav import made_wav

pytestmark = pytest.mark.timeout(300)
TURN = "language model -> audio -> language model"


@pytest.fixture
def demo(tmp_path):
    environ = {
        name: value
        for name, value in os.environ.items()
        if name == "GPU_PHASE_FOLLOW_UP_SECONDS" or not name.startswith(("GPU_", "LLM_", "VOXINT_"))
    }

    def run(*arguments):
        command = [sys.executable, "-m", "voxint", "demo", "--stand-ins", "--into", str(tmp_path / "demo"), *arguments]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def recording(tmp_path):
    return made_wav(tmp_path / "[a] talk.wav", 3)


def test_a_recording_of_the_users_own_to_the_end_and_shown_again(demo, recording, tmp_path):
    first = demo(str(recording))
    assert first.returncode == 0, first.stdout + first.stderr
    lines = first.stdout.splitlines()
    assert "settings GPU_PHASE_TICK_SECONDS=5 GPU_PHASE_MIN_DWELL_SECONDS=0" in first.stdout
    # Stages of stand-ins may be over between two looks: only the end is sure to be shown.
    assert "[a] talk: done" in first.stdout
    assert lines[-1].startswith(f"demo: 1 recording done, {TURN}, ")
    assert "WER" not in first.stdout
    for ending in ("txt", "srt", "vtt", "json"):
        assert (tmp_path / "demo" / f"[a] talk.{ending}").stat().st_size
    rows = json.loads((tmp_path / "demo" / "timeline.json").read_text())
    assert all(set(row) == {"phase", "since", "until", "seconds", "cause"} for row in rows)
    order = [row["phase"] for row in rows]
    assert order[0] == order[-1] == "llm"
    assert order.index("acquiring") < order.index("audio") < order.index("releasing")

    begun = time.monotonic()
    again = demo(str(recording))
    assert again.returncode == 0
    assert "shown again" in again.stdout.splitlines()[-1]
    assert "is transcribed" not in again.stdout
    assert time.monotonic() - begun < 60, "a repeat starts the database alone"


def test_a_file_that_is_not_there_is_told_before_anything_starts(demo, tmp_path):
    result = demo(str(tmp_path / "nothing.wav"))
    assert result.returncode == 1
    assert "there is no such file" in result.stderr


def test_what_is_no_recording_is_told_in_words(demo, tmp_path):
    path = tmp_path / "letter.wav"
    path.write_text("Dear Mara")
    result = demo(str(path))
    assert result.returncode == 1
    assert "letter.wav" in result.stderr
    assert "Traceback" not in result.stderr
