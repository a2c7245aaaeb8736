"""The broker as a distribution of its own: what it needs, and that it runs with nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "packages" / "voxint-broker"
NEVER = {"celery", "kombu", "redis", "sqlalchemy", "psycopg", "alembic", "docker", "numpy", "av", "jinja2", "voxint"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=PACKAGE, check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


def needed(wheel):
    """The names of everything that the wheel pulls in, by what is installed here."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith("METADATA")]
        lines = archive.read(metadata).decode().splitlines()
    waiting = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    found: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        if "extra ==" in requirement or "sys_platform == 'win32'" in requirement:
            continue
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower().replace("_", "-")
        if name in found:
            continue
        try:
            waiting += distribution(name).requires or []
        except ModuleNotFoundError:
            continue  # for another platform or Python
        found.add(name)
    return found


def test_it_is_light(wheel):
    names = needed(wheel)
    print(sorted(names))
    assert {"fastapi", "uvicorn", "typer", "nvidia-ml-py"} <= names
    assert not names & NEVER
    assert len(names) < 30


def test_it_holds_the_broker_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "voxint_broker/cli.py" in names
    assert all(name.startswith(("voxint_broker/", "voxint_broker-")) for name in names)


def test_it_runs_with_what_it_names_alone(wheel, tmp_path):
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for name in needed(wheel):
        for file in distribution(name).files or []:
            if ".." not in file.parts and "__pycache__" not in file.parts:
                target = site / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file.locate(), target)
    program = (
        f"import sys; sys.path.insert(0, {str(site)!r}); from voxint_broker.cli import main; "
        "code = main(sys.argv[1:]); print(sorted({name.partition('.')[0] for name in sys.modules})); sys.exit(code)"
    )
    (tmp_path / "broker.toml").write_text(
        'state_dir = "state"\n[memory]\nkind = "nvml"\nneed_free_mib = 1\n[[service]]\nname = "lm"\nkind = "child"\n'
        'command = ["true"]\nready_url = "http://127.0.0.1:1/"\n'
    )
    command = [sys.executable, "-I", "-S", "-c", program, "dry-run", "--config", str(tmp_path / "broker.toml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "lm (child): SIGTERM" in done.stdout
    assert "uvicorn" in done.stdout
    for name in NEVER - {"voxint"}:
        assert f"'{name}'" not in done.stdout


def packed(name, folder):
    """An installed distribution as a wheel again, so that pip can install it without a network."""
    dist = distribution(name)
    own = next(file.parent for file in dist.files or [] if file.name == "METADATA")
    tag = re.search(r"^Tag: ((?:py3|cp3).+)$", dist.read_text("WHEEL") or "", re.MULTILINE)[1]
    stem = own.name.removesuffix(".dist-info")
    with zipfile.ZipFile(folder / f"{stem}-{tag}.whl", "w") as archive:
        for file in dist.files or []:
            inside = ".." not in file.parts and "__pycache__" not in file.parts
            if inside and file.name not in {"INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"}:
                archive.write(file.locate(), file.as_posix())


@pytest.mark.timeout(300)
def test_pip_installs_it_into_an_empty_environment_without_a_network(wheel, tmp_path):
    pytest.importorskip("pip")
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    shutil.copy(wheel, shelf)
    for name in needed(wheel):
        packed(name, shelf)
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    # An environment has a pip of its own as a rule; ours does the same from outside, and is quicker to have.
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index"]
    install += ["--disable-pip-version-check", "--no-compile", "--find-links", str(shelf), "voxint-broker"]
    clean = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(install, check=False, capture_output=True, text=True, env=clean, timeout=250)
    assert done.returncode == 0, done.stderr
    listing = (
        "import importlib.metadata as m, json; "
        "print(json.dumps(sorted(d.metadata['Name'].lower().replace('_', '-') for d in m.distributions())))"
    )
    names = set(json.loads(subprocess.run([python, "-I", "-c", listing], check=True, capture_output=True).stdout))
    print(sorted(names))
    assert names == {*needed(wheel), "voxint-broker"}
    assert not names & NEVER
    shown = subprocess.run([home / "bin" / "voxint-broker", "--help"], check=True, capture_output=True, text=True)
    for word in ("serve", "status", "doctor", "release", "dry-run", "simulate", "check"):
        assert word in shown.stdout
