"""What the gauges read: a fake NVML library that changes while it is read, a tree like /sys, commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from voxint_broker import bounded as bounded_calls
from voxint_broker.bounded import Bounded, StuckError, run
from voxint_broker.config import check
from voxint_broker.memory.gauges import gauge_of

SOURCE = Path(__file__).parents[1] / "support" / "fake_nvml.c"


def gauge(tmp_path, **memory):
    service = {"name": "lm", "kind": "child", "command": ["true"], "ready_url": "http://127.0.0.1:1/"}
    return gauge_of(check({"state_dir": "s", "memory": memory, "service": [service]}, tmp_path).memory)


# --- NVML -----------------------------------------------------------------------------------------------------

READ = """
import sys
from pathlib import Path
from voxint_broker.config import check
from voxint_broker.memory.gauges import gauge_of
service = {"name": "lm", "kind": "child", "command": ["true"], "ready_url": "http://127.0.0.1:1/"}
memory = {"kind": "nvml", "need_free_mib": 6000, "gpus": eval(sys.argv[1])}
gauge = gauge_of(check({"state_dir": "s", "memory": memory, "service": [service]}, Path("/")).memory)
for state in sys.argv[3:]:
    Path(sys.argv[2]).write_text(state)
    reading = gauge.read()
    print(reading.enough, reading.free_mib, reading.detail, sep="|")
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to make the fake NVML with")
    folder = tmp_path_factory.mktemp("nvml")
    command = [compiler, "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", folder / "libnvidia-ml.so.1"]
    subprocess.run([*command, SOURCE], check=True, capture_output=True)
    return folder


def nvml(library, tmp_path, gpus, *states):
    state = tmp_path / "gpus"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "FAKE_NVML_STATE": str(state)}
    argv = [sys.executable, "-c", READ, repr(gpus), str(state), *states]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    return [line.split("|", 2) for line in done.stdout.splitlines()]


def test_nvml_says_how_much_is_free_and_who_holds_the_rest(library, tmp_path):
    pid = os.getpid()
    taken, free = nvml(library, tmp_path, [0], f"8192 5000 0 0 {pid}:4000 1:500", "8192 100 0 0")
    assert taken[:2] == ["False", "3192"]
    assert "3192 of 8192 MiB free, 6000 needed" in taken[2]
    assert f"held by process {pid} (" in taken[2]
    assert "4000 MiB" in taken[2]
    assert free[:2] == ["True", "8092"]


def test_nvml_needs_the_memory_on_every_named_gpu(library, tmp_path):
    both = "8192 100 0 0\n8192 8000 0 0"
    assert nvml(library, tmp_path, [0], both)[0][0] == "True"
    assert nvml(library, tmp_path, [0, 1], both)[0][0] == "False"
    assert nvml(library, tmp_path, [2], both)[0][0] == "None"


def test_nvml_in_trouble_is_unknown_and_comes_back(library, tmp_path):
    lines = nvml(library, tmp_path, [0], "8192 100 9 0", "8192 100 0 0", "", "8192 100 0 0")
    assert [line[0] for line in lines] == ["None", "True", "None", "True"]
    assert "Driver Not Loaded" in lines[0][2]


def test_processes_that_cannot_be_listed_do_not_hide_the_figures(library, tmp_path):
    for state in ("8192 5000 0 4 1:4000", "8192 5000 0 0 1:-1"):
        ((enough, free, detail),) = nvml(library, tmp_path, [0], state)
        assert (enough, free) == ("False", "3192"), detail


def test_no_nvml_is_unknown(tmp_path):
    (line,) = nvml(tmp_path / "nothing", tmp_path, [0], "")
    assert line[0] == "None"
    assert "NVML" in line[2]


# --- sysfs ----------------------------------------------------------------------------------------------------


def card(tmp_path, name="card0", total=8 << 30, used=1 << 30):
    device = tmp_path / "drm" / name / "device"
    device.mkdir(parents=True, exist_ok=True)
    (device / "mem_info_vram_total").write_text(f"{total}\n")
    (device / "mem_info_vram_used").write_text(f"{used}\n")
    return device


def test_sysfs_reads_each_card(tmp_path):
    device = card(tmp_path)
    card(tmp_path, "card1", used=7 << 30)
    one = gauge(tmp_path, kind="sysfs", need_free_mib=6000, root="drm")
    assert (one.read().enough, one.read().free_mib) == (True, 7168)
    two = gauge(tmp_path, kind="sysfs", need_free_mib=6000, root="drm", cards=["card0", "card1"])
    assert (two.read().enough, two.read().free_mib) == (False, 1024)
    (device / "mem_info_vram_used").write_text(str(6 << 30))
    assert one.read().enough is False


@pytest.mark.parametrize("used", ["", "soon", "-5", str(9 << 30)])
def test_sysfs_that_cannot_be_is_unknown(tmp_path, used):
    (card(tmp_path) / "mem_info_vram_used").write_text(used)
    assert gauge(tmp_path, kind="sysfs", need_free_mib=10, root="drm").read().enough is None


def test_sysfs_names_who_holds_the_memory(tmp_path):
    card(tmp_path, used=7 << 30)
    for pid, files in ((os.getpid(), {"vram_1": 3 << 30, "vram_2": 1 << 30}), (1, {"vram_1": 0}), (2, {"vram_1": "?"})):
        (tmp_path / "kfd" / str(pid)).mkdir(parents=True)
        for name, used in files.items():
            (tmp_path / "kfd" / str(pid) / name).write_text(str(used))
    reading = gauge(tmp_path, kind="sysfs", need_free_mib=6000, root="drm", kfd="kfd").read()
    assert [(holder.pid, holder.used_mib) for holder in reading.holders] == [(os.getpid(), 4096)]
    assert f"held by process {os.getpid()} (" in reading.detail
    without = gauge(tmp_path, kind="sysfs", need_free_mib=6000, root="drm", kfd="no-such-folder").read()
    assert (without.enough, without.holders) == (False, ())


def test_no_card_is_unknown(tmp_path):
    assert gauge(tmp_path, kind="sysfs", need_free_mib=10, root="drm").read().enough is None


# --- commands -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "enough"),
    [
        ("print(8000)", True),
        ("print(8000); print(7000)", True),
        ("print(8000); print(10)", False),
        ("print(0)", False),
        ("print('[N/A]')", None),
        ("print('8000 MiB')", None),
        ("print(-5)", None),
        ("pass", None),
        ("print(8000); raise SystemExit(1)", None),
        ("import time; print(8000, flush=True); time.sleep(60)", None),
    ],
)
def test_a_command_prints_the_free_memory(tmp_path, text, enough):
    argv = [sys.executable, "-S", "-E", "-c", text]
    limit = 0.5 if "sleep" in text else 30
    reading = gauge(tmp_path, kind="command", command=argv, need_free_mib=6000, answer_seconds=limit).read()
    assert reading.enough is enough, reading


def test_a_command_that_is_not_there_is_unknown(tmp_path):
    reading = gauge(tmp_path, kind="command", command=["/no/such/program"], need_free_mib=1).read()
    assert reading.enough is None
    assert "cannot run /no/such/program" in reading.detail


def test_a_command_that_hangs_is_killed_with_its_children():
    ran = run([sys.executable, "-S", "-E", "-c", "import os, time; os.fork(); time.sleep(60)"], 0.5)
    assert ran.status is None
    assert "did not end within 0.5 s" in ran.problem


# --- calls that hang ------------------------------------------------------------------------------------------


def test_a_call_that_hangs_is_not_made_twice():
    import threading

    free = threading.Event()
    calls = []

    def hangs():
        calls.append(1)
        free.wait(60)
        return 7

    bounded = Bounded(hangs, 0.05)
    for _ in range(3):
        with pytest.raises(StuckError):
            bounded()
    assert len(calls) == 1
    free.set()
    bounded._running.join(60)
    bounded._seconds = 60  # a busy machine may take longer than 50 ms to start a thread
    assert bounded() == 7


def test_what_a_call_raises_comes_out():
    with pytest.raises(ZeroDivisionError):
        Bounded(lambda: 1 // 0, 5)()


# --- the lock file --------------------------------------------------------------------------------------------


def test_the_lock_file(tmp_path):
    import fcntl

    reads = gauge(tmp_path, kind="lock", path="card.lock")
    assert reads.read().enough is True
    with (tmp_path / "card.lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert reads.read().enough is False
    assert reads.read().enough is True
    assert gauge(tmp_path, kind="lock", path="no/such/folder/lock").read().enough is None


def test_a_command_that_no_signal_ends_is_left_and_not_run_a_second_time(tmp_path, monkeypatch):
    flag = tmp_path / "well"
    argv = ["sh", "-c", f"test -e {flag} || exec sleep 600"]
    monkeypatch.setattr(bounded_calls, "_KILLED_SECONDS", 0.1)
    with monkeypatch.context() as patch:  # as one that hangs in a driver
        patch.setattr(bounded_calls, "_kill_group", lambda process: process.stdout.close())
        ran = run(argv, 0.1)
        assert (ran.status, ran.problem) == (None, "sh did not end within 0.1 s, and cannot be killed")
        stuck = bounded_calls._stuck[tuple(argv)]
        assert run(argv, 30).problem == f"sh: an earlier run, process {stuck.pid}, is still stuck and cannot be killed"
    assert run(["true"], 30).status == 0
    flag.touch()
    stuck.kill()
    stuck.wait(30)
    assert run(argv, 30).status == 0
    assert bounded_calls._stuck == {}
