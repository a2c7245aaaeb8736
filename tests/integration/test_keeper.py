"""A child that is kept running: started again when it ends, with a growing pause, and ended with all that it started."""

import os
import signal
import sys
import time

import psutil
import pytest

from voxint.standalone.home import Home
from voxint.standalone.keeper import Keeper, Program, words
from voxint.standalone.supervisor import Options, Supervisor


@pytest.fixture
def keep(tmp_path):
    made = []

    def start(script, **options):
        program = Program("child", (sys.executable, "-c", script), **options)
        keeper = Keeper(program, tmp_path / f"child-{len(made)}.log", dict(os.environ))
        made.append(keeper)
        keeper.start()
        return keeper

    yield start
    for keeper in made:
        keeper.stop(0)


def look_until_ended(keeper, limit=60):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        ended = keeper.look()
        if ended is not None:
            return ended
        time.sleep(0.02)
    raise AssertionError("it did not end")


def test_what_ends_is_started_again_and_its_last_words_are_told(keep):
    keeper = keep("import sys; print('cannot go on: no tea'); print(); sys.exit(3)")
    ended = look_until_ended(keeper)
    assert (ended.name, ended.how, ended.said) == ("child", "exit 3", "cannot go on: no tea")
    time.sleep(ended.again_in_seconds)
    keeper.look()
    assert keeper.pid is not None


def test_the_pause_grows_while_it_keeps_ending(keep):
    keeper = keep("raise SystemExit(1)")
    pauses = [look_until_ended(keeper).again_in_seconds for _ in range(3)]
    assert pauses == sorted(pauses)
    assert pauses[-1] > pauses[0]


def test_a_killed_child_takes_its_own_children_along(keep, tmp_path, eventually):
    mark = tmp_path / "pid"
    keeper = keep(
        "import subprocess, sys, time, pathlib\n"
        "grandchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"pathlib.Path({str(mark)!r}).write_text(str(grandchild.pid))\n"
        "time.sleep(60)\n"
    )
    eventually(lambda: mark.exists() and mark.read_text(), 10)
    grandchild = psutil.Process(int(mark.read_text()))
    os.kill(keeper.pid, signal.SIGKILL)
    assert look_until_ended(keeper).how == "SIGKILL"
    eventually(lambda: not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE, 5)


def test_one_that_does_not_listen_is_killed_after_its_time(keep, tmp_path, eventually):
    keeper = keep(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    eventually(lambda: keeper.last_line() == "up", 10)
    begun = time.monotonic()
    assert not keeper.stop(0.3)
    assert 0.3 <= time.monotonic() - begun < 30
    assert keeper.pid is None


def test_one_that_listens_ends_politely(keep, eventually):
    keeper = keep("import time; print('up', flush=True); time.sleep(60)")
    eventually(lambda: keeper.last_line() == "up", 10)
    assert keeper.stop(10)


def test_exit_codes_are_words():
    assert (words(0), words(2), words(-15), words(-250)) == ("exit 0", "exit 2", "SIGTERM", "signal 250")


def test_what_cannot_be_started_again_is_told_and_tried_again(keep, tmp_path):
    keeper = keep("raise SystemExit(1)")
    look_until_ended(keeper)
    keeper.log.unlink()
    keeper.log.mkdir()  # as on a full disk: the log cannot be opened
    pauses = []
    for _ in range(3):
        ended = look_until_ended(keeper)
        assert ended.how == "could not be started: Is a directory"
        pauses.append(ended.again_in_seconds)
    assert pauses == sorted(set(pauses))
    keeper.log.rmdir()
    assert look_until_ended(keeper).how == "exit 1"


def test_a_list_of_children_that_cannot_be_written_ends_nothing_and_is_written_later(tmp_path):
    home = Home(tmp_path / "home")
    home.make()
    said = []
    supervisor = Supervisor(home, Options(), {}, said.append)
    home.children.mkdir()  # as on a full disk: it cannot be written
    for _ in range(3):
        supervisor._look_at_children()
        supervisor._remember()
    assert [line for line in said if str(home.children) in line] == said
    assert len(said) == 1
    assert [path for path in home.children.parent.iterdir() if path.name.startswith(".children")] == []
    home.children.rmdir()
    supervisor._look_at_children()
    assert home.children.read_text() == "[]\n"
