"""The broker killed at its points: a sample in every run, all of them with `python tests/support/broker_lives.py DIR`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import broker_lives as lives
import pytest

LIVES = Path(__file__).parents[1] / "support" / "broker_lives.py"


@pytest.mark.timeout(300)
def test_no_point_leaves_two_holders_a_forgotten_lease_or_a_lost_service(tmp_path):
    done = subprocess.run(
        [sys.executable, LIVES, tmp_path, "17"], check=False, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 bad" in done.stdout
    points = int(done.stdout.rsplit("crash: ", 1)[1].split()[0])
    assert points >= 9


@pytest.mark.timeout(120)
@pytest.mark.parametrize("twin", lives.TWINS)
def test_a_broker_that_is_broken_on_purpose_is_found(tmp_path, twin):
    scenario, point = lives.TWINS[twin]
    program = (
        f"import sys; sys.path.insert(0, {str(LIVES.parent)!r}); from pathlib import Path; import broker_lives as lives; "
        f"lives.Driver(lives._place(Path({str(tmp_path)!r})), {scenario!r}, {point!r}, twin={twin!r}).run()"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=100)
    print(done.stderr)
    assert done.returncode == 1
    assert done.stderr.rstrip().rpartition("\n")[2].startswith("broker_lives.BadError")
