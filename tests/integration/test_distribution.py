"""What is released: a wheel that runs without the repository, and an sdist that makes the same wheel."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def build(folder, target, out):
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


def names_in(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return sorted(archive.namelist())


def test_the_wheel_holds_what_runs_and_no_tests(wheel):
    names = names_in(wheel)
    for name in ("voxint/db/migrations/env.py", "voxint/py.typed", "voxint_models/py.typed", "voxint_broker/py.typed"):
        assert name in names
    migrations = [name for name in names if name.startswith("voxint/db/migrations/versions/0")]
    assert len(migrations) == len(list((ROOT / "migrations" / "versions").glob("0*.py")))
    static = {p.name for p in (ROOT / "src/voxint/console/static").iterdir() if p.is_file()}
    assert static <= {Path(name).name for name in names if name.startswith("voxint/console/static/")}
    assert any(name.startswith("voxint/console/templates/") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "scripts/")) or "__pycache__" in name]


def test_the_sdist_makes_the_same_wheel(wheel, tmp_path):
    (tmp_path / "sdist").mkdir()
    with tarfile.open(build(ROOT, "sdist", tmp_path / "sdist")) as archive:
        # Debian 12 has Python 3.11.2, which knows no filter yet.
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(tmp_path / "source", **safely)
    (source,) = (tmp_path / "source").iterdir()
    (tmp_path / "again").mkdir()
    assert names_in(build(source, "wheel", tmp_path / "again")) == names_in(wheel)


def test_the_installed_wheel_runs_and_migrates_a_database_without_the_repository(wheel, tmp_path, empty_database_url):
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # Everything but this project comes from the environment of the tests; the project's own sources are not on the path.
    program = (
        "import sys; sys.path[:] = [p for p in sys.path if not p.endswith('/src')];"
        "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in type(f).__module__.lower()"
        " and 'editable' not in getattr(f, '__name__', '').lower()];"
        f"sys.path.insert(0, {str(site)!r});"
        "import voxint; assert voxint.__file__.startswith(sys.path[0]), voxint.__file__;"
        "from voxint.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "db", "upgrade"],
        cwd=tmp_path, env=os.environ | {"DATABASE_URL": empty_database_url},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    newest = max(path.name for path in (ROOT / "migrations" / "versions").glob("0*.py")).partition("_")[0]
    assert f"the database is at {newest}" in done.stdout
