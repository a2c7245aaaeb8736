"""GPU memory by process: from a stand-in for NVML's library, and from a tree of files like AMD's. Silence is no CPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from voxint.services.placement.amd import read_amd
from voxint.services.placement.devices import Device
from voxint.services.placement.judge import Expectation, Observation, Verdict, judge
from voxint.services.placement.memory import GpuRows, held_by, sees_every_process

MIB = 1 << 20
CUDA = Expectation(frozenset({Device.CUDA}))
SOURCE = Path(__file__).parents[2] / "support" / "fake_nvml.c"
SCRIPT = """
import json, sys
from voxint.services.placement.nvml import read_nvml
rows = read_nvml(host_numbers=sys.argv[1] == "yes")
print(json.dumps({"rows": list(rows.rows.items()), "complete": rows.complete, "why": rows.why, "kind": rows.kind}))
"""


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to make the stand-in for NVML with")
    folder = tmp_path_factory.mktemp("nvml")
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([*command, "-o", folder / "libnvidia-ml.so.1", SOURCE], check=True)
    return folder


@pytest.fixture
def nvml(fake_nvml, tmp_path):
    """Reads NVML in a process of its own, with the stand-in's state as given."""

    def read(*gpus, host_numbers=True):
        state = tmp_path / "state"
        state.write_text("".join(f"{gpu}\n" for gpu in gpus))
        environ = {**os.environ, "LD_LIBRARY_PATH": str(fake_nvml), "FAKE_NVML_STATE": str(state)}
        argv = [sys.executable, "-c", SCRIPT, "yes" if host_numbers else "no"]
        ran = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True)
        found = json.loads(ran.stdout)
        assert found["kind"] == "cuda"
        return GpuRows(dict(map(tuple, found["rows"])), found["complete"], Device.CUDA, found["why"])

    return read


def verdict(seen, *pids):
    return judge("kokoro", CUDA, Observation(gpu_bytes=held_by(seen, pids), gpu_kind=seen.kind)).verdict


def test_a_model_on_the_gpu_and_a_process_without_a_row(nvml):
    seen = nvml("32000 7400 0 0 4711:6963 4712:431")
    assert seen.complete
    assert held_by(seen, [4711]) == 6963 * MIB
    assert held_by(seen, [4711, 4712]) == 7394 * MIB
    assert held_by(seen, [9]) == 0
    assert verdict(seen, 4711) is Verdict.OK
    assert verdict(seen, 9) is Verdict.WRONG


def test_a_bare_context_proves_nothing(nvml):
    for mib in (300, 534, 570, 664, 700):
        assert verdict(nvml(f"32000 {mib} 0 0 4711:{mib}"), 4711) is Verdict.UNKNOWN


def test_memory_on_two_gpus_is_added_up(nvml):
    seen = nvml("32000 700 0 0 4711:600", "32000 700 0 0 4711:600")
    assert held_by(seen, [4711]) == 1200 * MIB


def test_a_row_without_a_figure_and_a_row_of_zero_tell_nothing(nvml):
    assert verdict(nvml("32000 700 0 0 4711:-1"), 4711) is Verdict.UNKNOWN
    assert verdict(nvml("32000 700 0 0 4711:0"), 4711) is Verdict.UNKNOWN
    assert held_by(nvml("32000 700 0 0 4711:-1", "32000 700 0 0 4711:600"), [4711]) is None


def test_memory_in_use_that_no_row_names_means_that_rows_are_hidden(nvml):
    seen = nvml("32000 7400 0 0")
    assert not seen.complete
    assert "names no process" in seen.why
    assert verdict(seen, 4711) is Verdict.UNKNOWN


def test_an_idle_gpu_has_no_rows_to_hide(nvml):
    assert verdict(nvml("32000 4 0 0"), 4711) is Verdict.WRONG


def test_inside_a_container_nothing_is_told_even_where_a_number_happens_to_fit(nvml):
    seen = nvml("32000 7400 0 0 4711:6963", host_numbers=False)
    assert seen.rows == {}
    assert verdict(seen, 4711) is Verdict.UNKNOWN
    assert verdict(seen, 9) is Verdict.UNKNOWN


@pytest.mark.parametrize(("error", "words"), [(9, "Not Loaded"), (15, "lost"), (18, "mismatch"), (999, "Unknown")])
def test_trouble_with_the_driver_is_not_a_cpu(nvml, error, words):
    seen = nvml(f"32000 7400 {error} 0 4711:6963")
    assert verdict(seen, 4711) is Verdict.UNKNOWN
    assert words.lower() in seen.why.lower()


def test_rows_that_may_not_be_read_on_one_gpu_leave_the_others(nvml):
    seen = nvml("32000 7400 0 4", "32000 7400 0 0 4711:6963")
    assert held_by(seen, [4711]) == 6963 * MIB
    assert held_by(seen, [9]) is None
    assert "ermission" in seen.why


def test_without_nvidia_nothing_is_told():
    argv = [sys.executable, "-c", SCRIPT, "yes"]
    ran = subprocess.run(argv, env={**os.environ, "LD_LIBRARY_PATH": ""}, capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)
    if not found["complete"]:  # on a machine with a real driver it may well be
        assert found["rows"] == []
        assert "NVML" in found["why"]


# --- AMD ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def sysfs(tmp_path):
    def made(processes, used=None):
        proc = tmp_path / "class" / "kfd" / "kfd" / "proc"
        proc.mkdir(parents=True)
        for pid, files in processes.items():
            (proc / str(pid)).mkdir()
            for gpu, text in files.items():
                (proc / str(pid) / f"vram_{gpu}").write_text(text)
            (proc / str(pid) / "pasid").write_text("32769\n")
        if used is not None:
            device = tmp_path / "class" / "drm" / "card1" / "device"
            device.mkdir(parents=True)
            (device / "mem_info_vram_used").write_text(f"{used}\n")
        return tmp_path

    return made


def test_amd_a_model_on_the_gpu_and_a_process_without_a_row(sysfs):
    root = sysfs({4711: {"51012": f"{3 << 30}\n", "51013": "1048576\n"}, 4712: {"51012": "0\n"}}, used=4 << 30)
    seen = read_amd(host_numbers=True, root=root)
    assert (seen.complete, seen.kind) == (True, Device.ROCM)
    assert held_by(seen, [4711]) == (3 << 30) + MIB
    assert held_by(seen, [4712]) is None
    assert held_by(seen, [9]) == 0
    expected = Expectation(frozenset({Device.GPU}))
    for pid, found in ((4711, Verdict.OK), (9, Verdict.WRONG), (4712, Verdict.UNKNOWN)):
        seen_one = Observation(gpu_bytes=held_by(seen, [pid]), gpu_kind=seen.kind)
        assert judge("whisper", expected, seen_one).verdict is found


def test_amd_what_cannot_be_read_tells_nothing(sysfs, tmp_path):
    assert held_by(read_amd(host_numbers=True, root=tmp_path / "nowhere"), [4711]) is None
    root = sysfs({4711: {"51012": "not a number\n"}})
    assert held_by(read_amd(host_numbers=True, root=root), [4711]) is None


def test_amd_hidden_rows_and_containers_tell_nothing(sysfs):
    root = sysfs({}, used=4 << 30)
    hidden = read_amd(host_numbers=True, root=root)
    assert not hidden.complete
    assert held_by(hidden, [4711]) is None
    assert held_by(read_amd(host_numbers=False, root=root), [4711]) is None


def test_amd_an_idle_card_has_no_rows_to_hide(sysfs):
    assert held_by(read_amd(host_numbers=True, root=sysfs({}, used=20 * MIB)), [4711]) == 0


# --- the numbering of processes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("namespace", "version", "sees"),
    [
        ("pid:[4026531836]", "Linux version 6.12.0 (gcc)", True),
        ("pid:[4026532841]", "Linux version 6.12.0 (gcc)", False),
        ("pid:[4026531836]", "Linux version 6.6.87.2-microsoft-standard-WSL2", False),
    ],
)
def test_who_has_the_hosts_numbers(tmp_path, namespace, version, sees):
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").symlink_to(namespace)
    (tmp_path / "version").write_text(version)
    assert sees_every_process(tmp_path) is sees


def test_without_proc_nobody_has_them(tmp_path):
    assert not sees_every_process(tmp_path)


def test_no_processes_hold_nothing_that_could_be_told():
    assert held_by(GpuRows({1: 5}, complete=True), []) is None
