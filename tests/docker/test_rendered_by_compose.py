"""Compose's own rendering of our files: the tests' small renderer agrees with it, and the test overlay takes away GPUs alone."""

from __future__ import annotations

import json
import os

import pytest
from compose_render import ROOT, render
from docker_stack import FILES, MODELS, run

pytestmark = [pytest.mark.quick, pytest.mark.timeout(400)]  # the first one may have to install compose
COMBINATIONS = [
    ("compose.yaml",),
    ("compose.yaml", "compose.cpu.yaml"),
    ("compose.yaml", "compose.gpu.yaml"),
    ("compose.yaml", "compose.gpu.yaml", "compose.gpu-phase.yaml"),
    ("compose.yaml", "compose.gpu.yaml", "compose.gpu-phase.yaml", "compose.socket-proxy.yaml"),
    ("compose.yaml", "compose.gpu.yaml", "compose.gpu-phase.yaml", "compose.service-controls.yaml"),
    ("compose.yaml", "compose.rocm.yaml", "compose.gpu-phase.yaml"),
]
PASSWORD = {"CONSOLE_PASSWORD": "a password for tests alone"}
ENVIRON = {"COMPUTE_TIER": "rocm", "WHISPER_IMAGE": "whisper-on-rocm:1", "GPU_PHASE_ENABLED": "true"}


def config(compose, names, environ, *more):
    files = [part for name in names for part in ("-f", str(ROOT / name))]
    argv = [*compose, *more, *files, "config", "--format", "json"]
    bare = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return json.loads(run(argv, cwd=ROOT, env={**bare, **PASSWORD, **environ}).stdout)


def plain(service):
    """The parts that both renderings have, in one form."""
    return {
        "environment": {name: str(value) for name, value in (service.get("environment") or {}).items()},
        "command": service.get("command"),
        "image": service["image"],
        "restart": service.get("restart"),
        "read_only": service.get("read_only"),
        "cap_drop": service.get("cap_drop"),
        "group_add": service.get("group_add"),
        "mounts": sorted((_source(one), one["target"]) for one in service.get("volumes", [])),
    }


def _source(mount):
    """Compose writes a folder beside the files out in full."""
    return str(ROOT / mount["source"]) if mount["source"].startswith("./") else mount["source"]


@pytest.mark.parametrize("names", COMBINATIONS, ids="+".join)
def test_our_renderer_agrees_with_compose(compose, names):
    environ = ENVIRON if "compose.rocm.yaml" in names else {"GPU_PHASE_ENABLED": "true"}
    theirs = config(compose, names, environ, "--profile", "*")["services"]
    ours = render(names, {**PASSWORD, **environ})["services"]
    assert theirs.keys() == ours.keys()
    for name, service in ours.items():
        assert plain(theirs[name]) == plain(service), name


def test_the_test_overlay_takes_away_what_the_machine_lacks_and_no_more(compose):
    environ = {"GPU_PHASE_ENABLED": "true", "COMPUTE_TIER": "gpu"}
    shipped = config(compose, FILES[:-1], environ)["services"]
    tested = config(compose, FILES, environ)["services"]
    assert tested.keys() - shipped.keys() == {"broker"}
    for name, service in shipped.items():
        changed = {key for key in service.keys() | tested[name].keys() if service.get(key) != tested[name].get(key)}
        allowed = {"image", "build", "command", "deploy", "environment", "volumes"} if name in MODELS else set()
        assert changed <= (allowed or ({"image"} if name in {"postgres", "redis"} else set())), name
        if name in MODELS:
            more = tested[name]["environment"].items() - service["environment"].items()
            assert {key for key, _ in more} == {"CARD_LOCK", "CARD_LEDGER", "STUB_CONTROL"}
            assert [one["target"] for one in tested[name]["volumes"]] == ["/models", "/run/voxint-turn", "/card"]
