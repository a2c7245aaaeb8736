"""The first set-up: what is found on a host, what is written to `.env`, and what is left alone."""

import os
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxint.cli import init
from voxint.init import envfile, machine, plan
from voxint.init.plan import Answers

NVIDIA = "Model: \t\t NVIDIA GeForce RTX 3090\nIRQ:   \t\t 16\nGPU UUID: \t GPU-5b1c\nVideo BIOS: 94.02\n"


def host(root, *paths):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("", encoding="utf-8")
    return root


def test_a_file_that_is_a_link_stays_one_and_its_owner_stays_its_owner(tmp_path):
    (tmp_path / "secrets").mkdir()
    real, link = tmp_path / "secrets" / "voxint.env", tmp_path / ".env"
    real.write_text("A=1\n", encoding="utf-8")
    owner = (12345, 12346) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    os.chown(real, *owner)
    link.symlink_to(Path("secrets") / "voxint.env")
    envfile.write(link, "A=2\n")
    assert link.is_symlink()
    assert real.read_text(encoding="utf-8") == "A=2\n"
    found = real.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (*owner, 0o600)
    assert [path.name for path in real.parent.iterdir()] == [real.name]


@pytest.mark.parametrize("failure", [OSError(8, "Exec format error"), subprocess.TimeoutExpired("docker", 60)])
def test_a_docker_that_does_not_answer_keeps_nobody_from_the_end(tmp_path, monkeypatch, capsys, failure):
    def fails(*_arguments, **_options):
        raise failure

    monkeypatch.setattr(init.shutil, "which", lambda _name: "/usr/bin/docker")
    monkeypatch.setattr(init.subprocess, "run", fails)
    init._doctor(tmp_path)
    out, err = capsys.readouterr()
    assert (out, err) == ("", "Whether the stack runs already could not be seen: docker did not answer.\n")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('A="gpu" # the card', "gpu"),
        ("A='a # b'  # c", "a # b"),
        ("A='it", "'it"),
        ('A="x" # "y"', "x"),
    ],
)
def test_a_comment_behind_a_quoted_value_is_none_of_it(line, value):
    assert envfile.read(line) == {"A": value}


def test_an_empty_host_is_the_cpu_tier(tmp_path):
    found = machine.look({}, tmp_path)
    assert found == machine.Machine("cpu")
    assert plan.missing(found, Answers("cpu", sharing=False)) == []


def test_an_nvidia_host_is_found_with_its_cards(tmp_path):
    host(tmp_path, "proc/driver/nvidia/version", "proc/driver/nvidia/gpus/0000:01:00.0/information")
    (tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0/information").write_text(NVIDIA, encoding="utf-8")
    found = machine.look({}, tmp_path)
    assert found.tier == "gpu"
    assert found.cards == ("NVIDIA GeForce RTX 3090 (GPU-5b1c)",)


def test_an_amd_host_is_found_with_its_groups(tmp_path):
    host(tmp_path, "dev/kfd", "dev/dri/renderD128", "var/run/docker.sock")
    found = machine.look({}, tmp_path)
    assert found.tier == "rocm"
    assert found.render_gid == found.video_gid == found.docker_gid == tmp_path.stat().st_gid


def test_another_docker_socket_is_looked_at(tmp_path):
    host(tmp_path, "run/user/1000/docker.sock")
    found = machine.look({"DOCKER_HOST": "unix:///run/user/1000/docker.sock"}, tmp_path)
    assert found.docker_gid is not None
    assert machine.look({}, tmp_path).docker_gid is None


@pytest.mark.parametrize(
    ("environ", "link", "zone"),
    [
        ({}, "usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin"),
        ({"TZ": "Asia/Tokyo"}, "usr/share/zoneinfo/Europe/Berlin", "Asia/Tokyo"),
        ({"TZ": "../../etc/passwd"}, None, None),
        ({}, None, None),
    ],
)
def test_the_time_zone_is_one_that_there_is(tmp_path, environ, link, zone):
    host(tmp_path, "usr/share/zoneinfo/Europe/Berlin", "usr/share/zoneinfo/Asia/Tokyo", "etc/passwd")
    if link:
        (tmp_path / "etc/localtime").symlink_to(tmp_path / link)
    assert machine.look(environ, tmp_path).zone == zone


NODE = "/dev/dri/renderD128"
GPU = machine.Machine("gpu", docker_gid=998, zone="Europe/Berlin")
SHARED = Answers("gpu", sharing=True, broker="http://host.docker.internal:9100/", token="t0ken")


def test_a_first_sharing_set_up_has_all_that_the_overlay_needs():
    assert plan.values(GPU, SHARED, {}, lambda: "random") == {
        "COMPOSE_FILE": "compose.yaml:compose.gpu.yaml:compose.gpu-phase.yaml",
        "COMPUTE_TIER": "gpu",
        "POSTGRES_PASSWORD": "random",
        "CONSOLE_PASSWORD": "random",
        "TZ": "Europe/Berlin",
        "DOCKER_GID": "998",
        "GPU_PHASE_ENABLED": "true",
        "GPU_LEASE_ACQUIRE_URL": "http://host.docker.internal:9100/gpu/acquire",
        "GPU_LEASE_RELEASE_URL": "http://host.docker.internal:9100/gpu/release",
        "GPU_LEASE_STATUS_URL": "http://host.docker.internal:9100/gpu/status",
        "GPU_LEASE_TOKEN": "t0ken",
    }


def test_secrets_that_are_there_stay():
    known = {"CONSOLE_PASSWORD_FILE": "/run/secrets/p", "TZ": "UTC"}
    found = plan.values(GPU, SHARED, known, lambda: pytest.fail("a new secret"))
    assert not {"POSTGRES_PASSWORD", "CONSOLE_PASSWORD", "TZ"} & set(found)


def test_a_database_that_may_exist_keeps_the_password_it_was_made_with():
    found = plan.values(GPU, SHARED, {"COMPUTE_TIER": "gpu"}, lambda: "random")
    assert "POSTGRES_PASSWORD" not in found
    assert found["CONSOLE_PASSWORD"] == "random"


def test_without_sharing_nothing_is_said_of_a_broker():
    found = plan.values(GPU, Answers("gpu", sharing=False), {}, lambda: "random")
    assert found["COMPOSE_FILE"] == "compose.yaml:compose.gpu.yaml"
    assert found["GPU_PHASE_ENABLED"] == "false"
    assert not [name for name in found if name.startswith("GPU_LEASE") or name == "DOCKER_GID"]


def test_what_the_host_lacks_is_named():
    assert plan.missing(machine.Machine("cpu"), SHARED) == [
        "This host has no NVIDIA driver (nvidia-smi prints nothing): install it before the first start.",
        "There is no /var/run/docker.sock: put DOCKER_GID, the group of the Docker socket, into .env yourself.",
    ]
    rocm = machine.Machine("rocm", docker_gid=1, render_gid=105, video_gid=44)
    assert len(plan.missing(rocm, Answers("rocm", sharing=False))) == 1
    assert plan.missing(machine.Machine("cpu"), Answers("rocm", sharing=False))[:3] == [
        "This host has no AMD driver (/dev/kfd): install it before the first start.",
        f"There is no {NODE}: put RENDER_GID, its group once it is there (stat -c %g {NODE}), into .env yourself.",
        "There is no /dev/kfd: put VIDEO_GID, its group once it is there (stat -c %g /dev/kfd), into .env yourself.",
    ]
    assert plan.values(rocm, Answers("rocm", sharing=False), {"A": "1"}, lambda: "x")["RENDER_GID"] == "105"


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("http://host.docker.internal:9100/gpu/status", "http://127.0.0.1:9100/gpu/status"),
        ("http://host.docker.internal/x", "http://127.0.0.1/x"),
        ("http://broker.lan:9100/x", "http://broker.lan:9100/x"),
    ],
)
def test_the_host_is_asked_on_loopback(url, seen):
    assert plan.seen_from_the_host(url) == seen


# --- the file -----------------------------------------------------------------------------------------------------

OLD = "# mine\nA=1\nexport B = 2\n\nA=3 # twice\n#C=9\nD='it # is'\n"


def test_the_file_is_read_as_compose_reads_it():
    assert envfile.read(OLD) == {"A": "3", "B": "2", "D": "it # is"}


def test_a_change_keeps_every_other_line():
    got = envfile.changed(OLD, {"A": "x", "C": "new"})
    assert got == "# mine\nA=1\nexport B = 2\n\nA=x\n#C=9\nD='it # is'\nC=new\n"


PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=0x17F, exclude_characters="'\x7f"), max_size=30)


@given(PRINTABLE.map(str.strip).filter(str.isprintable))
def test_what_is_written_is_read_again(value):
    text = envfile.changed("", {"NAME": value})
    assert envfile.read(text) == ({"NAME": value} if value else {})
    assert "$" not in text or "'" in text  # compose would fill a variable in


@pytest.mark.parametrize("value", ["it's", "two\nlines", "\x00"])
def test_what_no_line_can_hold_is_refused(value):
    with pytest.raises(ValueError, match="cannot hold"):
        envfile.changed("", {"NAME": value})


def test_the_file_is_its_owners_alone_and_is_put_there_in_one_step(tmp_path):
    path = tmp_path / ".env"
    path.write_text("A=1\n", encoding="utf-8")
    path.chmod(0o644)
    envfile.write(path, "A=2\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text(encoding="utf-8") == "A=2\n"
    assert [file.name for file in tmp_path.iterdir()] == [".env"]
