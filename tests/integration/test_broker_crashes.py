"""The broker killed at its points: a sample in every run, all of them with `python tests/support/broker_lives.py DIR`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LIVES = Path(__file__).parents[1] / "support" / "broker_lives.py"


@pytest.mark.timeout(300)
def test_no_point_leaves_two_holders_a_forgotten_lease_or_a_lost_service(tmp_path):
    done = subprocess.run(
        [sys.executable, LIVES, tmp_path, "13"], check=False, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 bad" in done.stdout
    points = int(done.stdout.rsplit("crash: ", 1)[1].split()[0])
    assert points >= 12
