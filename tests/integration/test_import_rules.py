"""The import rules hold, and they find an import that breaks them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BROKEN = {
    "src/voxint_broker/__init__.py": ("import voxint.settings", "nothing but the wire"),
    "src/voxint/gpu_phase/lanes.py": ("import sqlalchemy", "no library"),
    "src/voxint/db/engine.py": ("import voxint.wiring", "Commands, pages and workers"),
    "src/voxint/work/publish.py": ("import docker", "Docker library"),
    "src/voxint/db/clock.py": ("import httpx", "HTTP is spoken"),
}


def lint(folder):
    script = Path(sys.executable).with_name("lint-imports")
    environ = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONSAFEPATH": "1"}
    return subprocess.run([script, "--no-cache"], cwd=folder, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def test_they_hold(copy):
    result = lint(copy)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("path", sorted(BROKEN))
def test_a_broken_one_is_found(copy, path):
    line, name = BROKEN[path]
    file = copy / path
    before = file.read_text()
    file.write_text(before + f"\n{line}\n")
    try:
        result = lint(copy)
    finally:
        file.write_text(before)
    assert result.returncode == 1
    broken = result.stdout.split("Broken contracts")[1]
    assert name.split()[0] in broken
