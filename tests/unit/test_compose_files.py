"""What the compose files come to, in every combination that the documents name."""

from __future__ import annotations

import itertools
import re

import pytest
from compose_render import ROOT, MissingVariableError, load, render

from voxint.settings import LLM_FEATURES, NAMES, load_settings

TIERS = ("compose.cpu.yaml", "compose.gpu.yaml", "compose.rocm.yaml")
SHARING = "compose.gpu-phase.yaml"
CONTROLS = "compose.service-controls.yaml"
PROXY = "compose.socket-proxy.yaml"
MODELS = ("whisper", "pyannote", "titanet")
OURS = ("migrate", "api", "worker", "beat")
SOCKET = "/var/run/docker.sock"
PASSWORD = {"CONSOLE_PASSWORD": "a password for tests alone"}
ROCM = {"COMPUTE_TIER": "rocm", "WHISPER_IMAGE": "whisper-on-rocm:1"}
LEASE = {
    "GPU_PHASE_ENABLED": "true",
    "GPU_LEASE_ACQUIRE_URL": "http://host.docker.internal:9100/gpu/acquire",
    "GPU_LEASE_RELEASE_URL": "http://host.docker.internal:9100/gpu/release",
    "GPU_LEASE_STATUS_URL": "http://host.docker.internal:9100/gpu/status",
    "GPU_PHASE_MIN_DWELL_SECONDS": "300",
    "LLM_BASE_URL": "http://host.docker.internal:8000/v1",
}

COMBINATIONS = [
    ("compose.yaml", tier, *overlays)
    for tier in TIERS
    for count in range(3)
    for overlays in itertools.combinations((SHARING, CONTROLS), count)
    if not (tier == "compose.cpu.yaml" and SHARING in overlays)
]
COMBINATIONS += [("compose.yaml", tier, SHARING, PROXY) for tier in TIERS[1:]]


def rendered(names, **environ):
    tier = ROCM if "compose.rocm.yaml" in names else {}
    return render(names, {**PASSWORD, **tier, **environ})


@pytest.fixture(params=COMBINATIONS, ids="+".join)
def names(request):
    return request.param


def mounts_of(service):
    return {mount["target"]: mount for mount in service["volumes"]}


def differences(before, after):
    """Every place below two values where they differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() | after.keys():
            for where in differences(before.get(key), after.get(key)):
                yield (key, *where)
    elif before != after:
        yield ()


def test_every_file_is_in_a_documented_combination():
    files = {path.name for path in ROOT.glob("compose*.yaml")}
    assert files >= {name for names in COMBINATIONS for name in names}


@pytest.mark.parametrize("tier", TIERS[1:])
def test_sharing_adds_one_service_and_changes_the_models_alone(tier):
    before, after = rendered(("compose.yaml", tier)), rendered(("compose.yaml", tier, SHARING))
    assert after["services"].keys() - before["services"].keys() == {"gpu-phase"}
    changed = {where for where in differences(before, after) if where[1:2] != ("gpu-phase",)}
    allowed = {
        ("services", name, *rest)
        for name in MODELS
        for rest in [("restart",), ("environment", "GPU_PHASE_ENABLED"), ("environment", "GPU_TURN_FILE"), ("volumes",)]
    }
    assert changed == allowed | {("volumes", "turn")}
    assert after["services"]["worker"] == before["services"]["worker"]


def test_the_gpu_phase_service_alone_consumes_ticks_and_has_the_socket(names):
    services = rendered(names)["services"]
    tickers = [name for name, service in services.items() if "--gpu-phase" in service.get("command", [])]
    assert tickers == (["gpu-phase"] if SHARING in names else [])
    with_socket = {name for name, service in services.items() if SOCKET in mounts_of(service)}
    expected = {"docker-proxy" if PROXY in names else "gpu-phase"} if SHARING in names else set()
    assert with_socket == expected | ({"api"} if CONTROLS in names else set())
    for name in with_socket:
        assert services[name]["group_add"] == ["999"]
        assert name == "docker-proxy" or services[name]["environment"]["SERVICE_CONTROL"] == "docker"


@pytest.mark.parametrize("tier", TIERS[1:])
def test_no_model_container_starts_by_itself_under_sharing(tier):
    services = rendered(("compose.yaml", tier, SHARING), **LEASE)["services"]
    for name in MODELS:
        model = services[name]
        assert model["restart"] == "no"
        assert model["environment"]["GPU_TURN_FILE"] == "/run/voxint-turn/turn.json"
        assert model["environment"]["GPU_PHASE_ENABLED"] == "true"
        assert mounts_of(model)["/run/voxint-turn"]["read_only"] is True
        assert "entrypoint" not in model
    assert mounts_of(services["gpu-phase"])["/run/voxint-turn"]["read_only"] is False
    writers = [
        name
        for name, service in services.items()
        if "/run/voxint-turn" in mounts_of(service) and not mounts_of(service)["/run/voxint-turn"]["read_only"]
    ]
    assert writers == ["gpu-phase"]
    alone = rendered(("compose.yaml", tier), **LEASE)["services"]
    for name in MODELS:
        assert alone[name]["restart"] == "unless-stopped"
        assert "GPU_TURN_FILE" not in alone[name]["environment"]


def test_every_service_of_ours_sees_the_same_settings(names):
    services = rendered(names, **LEASE, LLM_API_KEY="key", GPU_LEASE_TOKEN="token", COMPOSE_PROJECT_NAME="mine")[
        "services"
    ]
    apart = {"SERVICE_CONTROL", "GPU_TURN_FILE", "MEDIA_ROOT"}
    reference = {name: value for name, value in services["worker"]["environment"].items() if name not in apart}
    seen_by_all = [name for name in (*OURS, "gpu-phase") if name in services]
    for name in seen_by_all:
        environment = services[name]["environment"]
        shared = reference.keys() if name != "gpu-phase" else reference.keys() & environment.keys()
        assert {key: environment[key] for key in shared} == {key: reference[key] for key in shared}, name
        assert environment["GPU_PHASE_ENABLED"] == "true"
        assert environment["COMPOSE_PROJECT_NAME"] == "mine"


def test_the_settings_that_a_container_gets_are_good_ones(names):
    services = rendered(names, **(LEASE if SHARING in names else {}))["services"]
    for name in (*OURS, *(["gpu-phase"] if SHARING in names else [])):
        settings = load_settings({key: str(value) for key, value in services[name]["environment"].items()})
        assert settings.gpu_phase_enabled == (SHARING in names)
        assert settings.services["whisper"].health_url == "http://whisper:8000/healthz"


NOT_FOR_ALL = {
    "CONSOLE_BIND",
    "CONSOLE_PASSWORD",
    "CONSOLE_ALLOWED_HOSTS",
    "CONSOLE_SESSION_SECONDS",
    "CONSOLE_PATHS",
    "UPLOAD_MAX_BYTES",
    "TRUSTED_PROXIES",
    "API_TOKEN",
}
"""The console's own; no other container needs them."""
NOT_IN_COMPOSE = {"SERVICE_STATE_DIR", "GPU_TURN_FILE"}
"""Process control's, and the one that the overlay sets."""


def test_no_setting_is_forgotten():
    services = rendered(["compose.yaml", "compose.gpu.yaml", SHARING])["services"]
    wanted = {*NAMES, *(f"LLM_{feature}_BASE_URL" for feature in LLM_FEATURES)} - NOT_IN_COMPOSE
    assert wanted - services["api"]["environment"].keys() == set()
    assert wanted - NOT_FOR_ALL - services["worker"]["environment"].keys() == set()
    assert services["worker"]["environment"].keys() & NOT_FOR_ALL == set()


def test_the_service_with_the_socket_gets_what_it_needs_and_no_more():
    environment = rendered(["compose.yaml", "compose.gpu.yaml", SHARING])["services"]["gpu-phase"]["environment"]
    wanted = {name for name in NAMES if name.startswith(("GPU_", "LLM_", "WORK_"))} - {
        "LLM_TIMEOUT_SECONDS",
        "LLM_NOTICE",
        "LLM_BATCH_LINES",
        "LLM_BATCH_TOKENS",
    }
    assert wanted - environment.keys() == set()
    assert environment.keys() & (NOT_FOR_ALL | {"MEDIA_ROOT", "POSTGRES_PASSWORD"}) == set()


def test_every_service_is_held_down(names):
    for name, service in rendered(names)["services"].items():
        if name != "speaches":  # somebody else's image: whether it can live without writing was never tried
            assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["mem_limit"], name
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "5"}, name
        assert "privileged" not in service
        assert "network_mode" not in service
        assert service.get("user", "") == ""


def test_nothing_but_the_console_is_published_and_that_on_loopback_alone(names):
    ports = {name: service["ports"] for name, service in rendered(names)["services"].items() if "ports" in service}
    speaches = {"speaches": ["127.0.0.1:8001:8000"]} if "compose.gpu.yaml" in names else {}
    assert ports == {"api": ["127.0.0.1:8080:8080"]} | speaches


def test_images_have_exact_tags(names):
    pinned = r"[a-z-]+:\d[\w.-]*|[a-z./-]+@sha256:[0-9a-f]{64}"
    for name, service in rendered(names)["services"].items():
        assert re.fullmatch(pinned, service["image"]), (name, service["image"])


def test_speaches_is_off_unless_its_profile_is_asked_for(names):
    services = rendered(names)["services"]
    assert {name: service["profiles"] for name, service in services.items() if "profiles" in service} == (
        {"speaches": ["speaches"]} if "compose.gpu.yaml" in names else {}
    )
    if "speaches" in services:
        assert services["speaches"]["restart"] == "no"


def test_the_gpu_is_reserved_by_the_models_alone(names):
    for name, service in rendered(names, GPU_DEVICE_IDS="1")["services"].items():
        devices = service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices")
        nvidia = "compose.gpu.yaml" in names and name in (*MODELS, "speaches")
        assert devices == ([{"driver": "nvidia", "device_ids": ["1"], "capabilities": ["gpu"]}] if nvidia else None)
        rocm = "compose.rocm.yaml" in names and name == "whisper"
        assert service.get("devices") == (["/dev/kfd", "/dev/dri"] if rocm else None)


def test_the_stop_limit_leaves_room_for_the_containers_own_grace(names):
    limit = load_settings({}).gpu_phase_stop_limit_seconds
    for name in MODELS:
        grace = rendered(names)["services"][name]["stop_grace_period"]
        assert float(grace.removesuffix("s")) + 30 <= limit


@pytest.mark.parametrize("tier", TIERS[1:])
def test_the_proxy_is_reached_by_the_gpu_phase_worker_alone(tier):
    merged = rendered(("compose.yaml", tier, SHARING, PROXY))
    services = merged["services"]
    assert merged["networks"]["docker-socket"] == {"internal": True}
    assert [name for name, one in services.items() if "docker-socket" in one.get("networks", [])] == [
        "gpu-phase",
        "docker-proxy",
    ]
    assert services["docker-proxy"]["networks"] == ["docker-socket"]
    assert services["gpu-phase"]["environment"]["DOCKER_HOST"] == "tcp://docker-proxy:2375"
    assert "group_add" not in services["gpu-phase"]
    assert list(mounts_of(services["gpu-phase"])) == ["/run/voxint-turn"]
    assert "ports" not in services["docker-proxy"]


def test_an_operators_own_file_keeps_its_say(tmp_path, monkeypatch):
    own = {"services": {"worker": {"command": ["voxint", "worker", "--concurrency", "8"]}}}
    before = load
    monkeypatch.setattr("compose_render.load", lambda name: own if name == "compose.own.yaml" else before(name))
    (tmp_path / "compose.own.yaml").touch()
    for name in ("compose.yaml", "compose.gpu.yaml", SHARING):
        (tmp_path / name).write_text((ROOT / name).read_text())
    monkeypatch.setattr("compose_render.ROOT", tmp_path)
    for order in [("compose.own.yaml", SHARING), (SHARING, "compose.own.yaml")]:
        services = rendered(["compose.yaml", "compose.gpu.yaml", *order])["services"]
        assert services["worker"]["command"] == ["voxint", "worker", "--concurrency", "8"]


def test_rocm_says_what_must_be_set():
    with pytest.raises(MissingVariableError, match="COMPUTE_TIER"):
        render(["compose.yaml", "compose.rocm.yaml"], PASSWORD)
    with pytest.raises(MissingVariableError, match="WHISPER_IMAGE"):
        render(["compose.yaml", "compose.rocm.yaml"], {**PASSWORD, "COMPUTE_TIER": "rocm"})


def test_nothing_starts_without_a_password_for_the_console():
    with pytest.raises(MissingVariableError, match="CONSOLE_PASSWORD"):
        render(["compose.yaml", "compose.cpu.yaml"], {})
    for environ in (PASSWORD, {"CONSOLE_PASSWORD": "", "CONSOLE_PASSWORD_FILE": "/run/secrets/password"}):
        services = render(["compose.yaml", "compose.cpu.yaml"], environ)["services"]
        given = {name: services["api"]["environment"][name] for name in ("CONSOLE_PASSWORD", "CONSOLE_PASSWORD_FILE")}
        assert given == {"CONSOLE_PASSWORD_FILE": "", **environ}
