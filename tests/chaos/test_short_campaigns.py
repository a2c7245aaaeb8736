"""Three short campaigns that must find nothing, and two with a safeguard taken out that must find it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from campaign import run_campaign

pytestmark = pytest.mark.timeout(720)
BUILD = Path("build")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_short_campaign_finds_nothing(seed):
    BUILD.mkdir(exist_ok=True)
    result = run_campaign(seed, 15, limit=540, keep=BUILD)
    print(result.line)
    assert result.clean, result
    assert all(result.kills.values()), f"every kind of process is killed: {result.kills}"


def test_without_the_gate_the_campaign_finds_work_outside_its_lane():
    result = run_campaign(4, 10, limit=60, broken="gate")
    print(result.line)
    assert result.outside > 0


def test_without_the_claim_token_the_campaign_finds_work_done_twice():
    # A worker that hangs past the heartbeat limit, and then goes on, is what the token is for.
    result = run_campaign(5, 30, limit=120, broken="token", only=("stall-worker",))
    print(result.line)
    assert result.twice > 0
