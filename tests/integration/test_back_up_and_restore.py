"""The commands of docs/how-to/operations.md for back-up and restore, carried out: what comes back is what was there."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from datetime import timedelta
from itertools import count

import made_day
import pytest
from doc_examples import all_examples, lines_of_shell
from sqlalchemy import text

from voxint.db.engine import make_engine
from voxint.db.migrate import upgrade
from voxint.db.tables import METADATA
from voxint.gpu_phase.model import Lane
from voxint.settings import load_settings
from voxint.wiring import Parts

pytestmark = pytest.mark.timeout(300)
PAGE = "docs/how-to/operations.md"
IN_POSTGRES = "docker compose exec -T postgres "
_NUMBERS = count(1)


def line_with(word):
    """The page's command with that word in it."""
    (found,) = {
        line for each in all_examples() if each.page == PAGE and each.block for line in lines_of_shell(each.text) if word in line
    }  # fmt: skip
    return found


@pytest.fixture
def binaries(postgres_server):
    folder = postgres_server.binaries
    for program in ("pg_dump", "pg_restore"):
        if not (folder / program).exists():
            pytest.skip(f"this PostgreSQL comes without {program}")
    return folder


@pytest.fixture
def carry_out(postgres_server, binaries, tmp_path):
    """Runs one of the page's lines on a database of the test's server, in place of the container's."""

    def run(line, database):
        assert line.startswith(IN_POSTGRES), line
        words = line.removeprefix(IN_POSTGRES)
        for old, new in (("--username=voxint", "--username=postgres"), ("--dbname=voxint", f"--dbname={database}")):
            words = words.replace(old, new)
        words = words.replace("--format=custom voxint ", f"--format=custom {database} ")
        environ = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "PGHOST": str(postgres_server.sockets)}
        return subprocess.run(
            ["sh", "-c", words], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=120
        )

    return run


@pytest.fixture
def other_database(postgres_server):
    """The database of a stack that was just brought up: empty."""
    name = f"restored_{os.getpid()}_{next(_NUMBERS)}"
    postgres_server.make_database(name)
    yield name
    admin = make_engine(postgres_server.url()).execution_options(isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    admin.dispose()


def everything(engine):
    """Each row of each table, as PostgreSQL writes it."""
    with engine.begin() as connection:
        return {
            name: sorted(connection.execute(text(f"SELECT t::text FROM {name} t")).scalars())
            for name in METADATA.tables
        }


def parts_of(url, media, **more):
    return Parts(load_settings({"DATABASE_URL": url, "MEDIA_ROOT": str(media), "COMPUTE_TIER": "simulated", **more}))


@pytest.mark.parametrize("migrated", [False, True], ids=["into an empty database", "after the migration has run"])
def test_what_is_restored_is_what_was_there(
    engine, database_url, postgres_server, other_database, carry_out, tmp_path, migrated
):
    media = tmp_path / "media"
    run = made_day.made_recordings(engine, media)
    made_day.made_phase(engine)
    before = everything(engine)
    assert sum(map(len, before.values())) > 50
    dumped = carry_out(line_with("pg_dump"), database_url.partition("?")[0].rpartition("/")[2])
    assert (dumped.returncode, dumped.stderr) == (0, "")

    restored = make_engine(postgres_server.url(other_database))
    if migrated:
        upgrade(restored)
    back = carry_out(line_with("pg_restore"), other_database)
    assert (back.returncode, back.stderr) == (0, "")
    assert everything(restored) == before
    upgrade(restored)  # what compose does at the next `up`: nothing is left to do
    assert everything(restored) == before

    ours, theirs = parts_of(database_url, media), parts_of(postgres_server.url(other_database), media)
    assert theirs.transcripts.export(run, "txt") == ours.transcripts.export(run, "txt")
    for each in (ours, theirs):
        each.close()
    restored.dispose()


def test_work_that_ran_in_the_moment_of_the_back_up_is_given_back(
    engine, database_url, postgres_server, other_database, carry_out, tmp_path
):
    made_day.made_recordings(engine, tmp_path / "media")
    ours = parts_of(database_url, tmp_path)
    claim = ours.gate.claim(Lane.GPU)
    ours.close()
    assert claim is not None
    carry_out(line_with("pg_dump"), database_url.partition("?")[0].rpartition("/")[2])
    carry_out(line_with("pg_restore"), other_database)
    theirs = parts_of(
        postgres_server.url(other_database),
        tmp_path,
        WORK_HEARTBEAT_SECONDS="0.01",
        WORK_HEARTBEAT_LIMIT_SECONDS="0.05",
    )
    state = text("SELECT state FROM work_item WHERE id = :id")
    with theirs.engine.begin() as connection:
        assert connection.execute(state, {"id": claim.item_id}).scalar_one() == "running"
        old = timedelta(minutes=2)
        connection.execute(text("UPDATE work_item SET heartbeat_at = heartbeat_at - :old"), {"old": old})
    assert theirs.gate.reap() == 1
    with theirs.engine.begin() as connection:
        assert connection.execute(state, {"id": claim.item_id}).scalar_one() == "queued"
    theirs.close()


def test_a_back_up_that_was_cut_off_is_refused(engine, database_url, other_database, carry_out, tmp_path):
    """The twin: half a file is no back-up, and says so."""
    made_day.made_phase(engine)
    carry_out(line_with("pg_dump"), database_url.partition("?")[0].rpartition("/")[2])
    dump = tmp_path / "voxint.dump"
    dump.write_bytes(dump.read_bytes()[: dump.stat().st_size // 2])
    back = carry_out(line_with("pg_restore"), other_database)
    assert back.returncode != 0
    assert back.stderr


@pytest.mark.skipif(shutil.which("tar") is None, reason="tar is not installed")
def test_the_media_folder_comes_back_with_its_names_and_times(tmp_path):
    source, target = tmp_path / "from", tmp_path / "to again"
    (source / "runs" / "1-ä b").mkdir(parents=True)
    (source / "runs" / "1-ä b" / "source.wav").write_bytes(b"RIFF" * 1000)
    (source / "inbox").mkdir()
    target.mkdir()
    for word, place in (("-cf", source), ("-xf", target)):
        line = line_with(word).partition("busybox ")[2]
        line = line.replace("-C /from", f"-C '{place}'").replace("-C /to", f"-C '{place}'")
        line = line.replace("/to/media.tar", f"'{tmp_path}/media.tar'").replace(
            "/from/media.tar", f"'{tmp_path}/media.tar'"
        )
        subprocess.run(["sh", "-c", line], check=True)
    with tarfile.open(tmp_path / "media.tar") as tar:
        assert len(tar.getnames()) == 5

    def tree(root):
        return {
            str(path.relative_to(root)): (int(path.stat().st_mtime), path.read_bytes() if path.is_file() else None)
            for path in root.rglob("*")
        }

    assert tree(target) == tree(source)
