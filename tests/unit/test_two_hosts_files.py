"""The compose files for a second host: what the first one shares with it, and that its worker is held and set like the first's."""

import pytest
from compose_render import MissingVariableError, load, render

from voxint.settings import load_settings

FIRST = ("compose.yaml", "compose.gpu.yaml", "compose.gpu-phase.yaml", "examples/two-hosts/share.yaml")
SECOND = ("examples/two-hosts/worker.yaml",)
ENVIRON = {
    "CONSOLE_PASSWORD": "a password for tests alone",
    "POSTGRES_PASSWORD": "secret",
    "SHARE_ADDRESS": "192.168.50.1",
    "SHARED_MEDIA": "/mnt/voxint",
}


def test_the_first_host_shares_on_one_address_alone():
    services = render(FIRST, ENVIRON)["services"]
    ports = {
        port for name, each in services.items() if name not in {"api", "speaches"} for port in each.get("ports", [])
    }
    assert {port.rsplit(":", 2)[0] for port in ports} == {"192.168.50.1"}
    assert {port.rsplit(":", 1)[1] for port in ports} == {"5432", "6379", "8000"}


def test_the_other_host_asks_where_the_first_one_shares():
    shared = {
        name: f"192.168.50.1:{port.rsplit(':', 2)[1]}"
        for name, each in render(FIRST, ENVIRON)["services"].items()
        for port in each.get("ports", [])
        if port.startswith("192.168.50.1")
    }
    environ = {name: str(value) for name, value in render(SECOND, ENVIRON)["services"]["worker"]["environment"].items()}
    settings = load_settings(environ)
    assert settings.database_url.get_secret_value() == f"postgresql://voxint:secret@{shared['postgres']}/voxint"
    assert settings.redis_url.get_secret_value() == f"redis://{shared['redis']}/0"
    assert {name: service.url for name, service in settings.services.items()} == {
        name: f"http://{shared[name]}" for name in ("whisper", "pyannote", "titanet")
    }
    assert settings.media_root == load_settings({"MEDIA_ROOT": "/media/voxint"}).media_root


def test_its_worker_is_held_like_the_first_ones():
    kept = ("read_only", "cap_drop", "security_opt", "init", "restart", "stop_grace_period", "mem_limit", "image")
    first, other = (render(names, ENVIRON)["services"]["worker"] for names in (FIRST, SECOND))
    assert {name: other[name] for name in kept} == {name: first[name] for name in kept}
    assert load(SECOND[0])["services"]["worker"]["env_file"] == ".env"


@pytest.mark.parametrize(
    ("names", "variable"), [(FIRST, "SHARE_ADDRESS"), (SECOND, "SHARE_ADDRESS"), (SECOND, "SHARED_MEDIA")]
)
def test_nothing_starts_before_it_is_said_where(names, variable):
    with pytest.raises(MissingVariableError, match=variable):
        render(names, {**ENVIRON, variable: ""})
