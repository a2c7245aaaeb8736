"""The systemd unit that is shipped: systemd itself finds nothing wrong with it, and it is locked up well."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "examples" / "broker" / "voxint-broker.service"


@pytest.fixture
def analyze(tmp_path):
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze here")

    def run(*words, unit=None):
        text = unit if unit is not None else UNIT.read_text(encoding="utf-8")
        # It looks for the program as well; where that is installed is the operator's matter.
        text = re.sub(r"/opt/voxint-broker/bin/voxint-broker", "/bin/true", text)
        file = tmp_path / UNIT.name
        file.write_text(text, encoding="utf-8")
        argv = [program, *words, str(file)]
        return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=100)

    return run


def test_systemd_finds_nothing_wrong(analyze):
    done = analyze("verify", "--man=no")
    about_ours = [line for line in (done.stderr + done.stdout).splitlines() if UNIT.name in line]
    assert about_ours == []
    assert done.returncode == 0, done.stderr


def test_a_unit_with_a_mistake_would_be_found(analyze):
    broken = UNIT.read_text(encoding="utf-8").replace("NoNewPrivileges=yes", "NoNewPrivilege=yes\nKillMode=soon")
    done = analyze("verify", "--man=no", unit=broken)
    said = done.stderr + done.stdout
    assert "NoNewPrivilege" in said
    assert "kill mode" in said.lower()


def test_it_is_locked_up_well(analyze):
    done = analyze("security", "--offline=yes", "--no-pager")
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    if found is None:
        pytest.skip(f"this systemd-analyze cannot look at a file: {done.stderr[:200]}")
    # Of 10. The whole GPU driver stays reachable, and child processes need what they need.
    assert float(found[1]) < 3.5, done.stdout[-600:]
