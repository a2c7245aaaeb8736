"""The configuration: every problem is told at once, unknown keys with a hint, and nothing that is unsafe is taken."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from voxint_broker.config import ConfigError, check, load, token_of

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "broker").glob("*.toml"))


def values(**changes):
    return {
        "state_dir": "state",
        "memory": {"kind": "none"},
        "service": [{"name": "lm", "kind": "child", "command": ["x"], "ready_url": "http://127.0.0.1:1/"}],
        **changes,
    }


def problems(config, folder=Path("/etc/voxint")):
    with pytest.raises(ConfigError) as caught:
        check(config, folder)
    return caught.value.problems


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_a_configuration(path):
    assert load(path).service


def test_there_are_examples():
    assert EXAMPLES


def test_paths_start_at_the_files_folder():
    config = check(values(), Path("/etc/voxint"))
    assert config.state_dir == Path("/etc/voxint/state")
    lock = check(values(memory={"kind": "lock", "path": "card.lock"}), Path("/etc/voxint"))
    assert lock.memory.path == Path("/etc/voxint/card.lock")


def test_a_password_in_an_address_is_refused_and_not_told():
    service = {**values()["service"][0], "ready_url": "http://voxint:hunter2@127.0.0.1:1/"}
    (found,) = problems(values(service=[service]))
    assert found.startswith("service.0.ready_url: must hold no name and password")
    assert "hunter2" not in found


def test_the_home_of_nobody_is_told():
    (found,) = problems(values(state_dir="~no-such-person/state"))
    assert found.startswith("a path begins with ~, and there is no such home")


def test_unknown_keys_are_errors_with_a_hint():
    service = {**values()["service"][0], "stop_second": 5}
    found = problems(values(lisen=["127.0.0.1:1"], service=[service]))
    assert "service.0.stop_second: there is no such key (did you mean stop_seconds?)" in found
    assert "lisen: there is no such key (did you mean listen?)" in found


def test_all_problems_are_told():
    text = "\n".join(
        problems(
            {
                "listen": ["9100"],
                "memory": {"kind": "nvml"},
                "service": [{"name": "a b", "kind": "child", "command": []}],
            }
        )
    )
    for part in ("listen.0", "state_dir: is missing", "memory.need_free_mib: is missing", "service.0.name", "command"):
        assert part in text


@pytest.mark.parametrize("place", ["0.0.0.0:9100", "172.17.0.1:9100", "[::]:9100", "192.168.1.5:9100"])
def test_beyond_loopback_a_token_is_needed(place):
    assert "so a token is needed" in problems(values(listen=[place]))[0]
    assert check(values(listen=[place], token="sesame"), Path("/")).listen == (place,)


@pytest.mark.parametrize("place", ["localhost:9100", "127.0.0.1", "127.0.0.1:99999", "::1:9100", "x:1", ""])
def test_an_address_is_numbers(place):
    assert "is no address" in problems(values(listen=[place]))[0]


def test_two_sources_of_a_token_and_two_services_of_a_name():
    twice = values()["service"] * 2
    text = "\n".join(problems(values(token="a", token_env="B", service=twice)))
    assert "token and token_env: keep one of them" in text
    assert "two services have the name 'lm'" in text


def test_a_service_needs_a_real_answer():
    service = {"name": "lm", "kind": "systemd", "unit": "llm.service"}
    assert "ready_url is missing" in problems(values(service=[service]))[0]


@pytest.mark.parametrize("text", ["", "  ", "two\nlines", "ключ", "a\tb"])
def test_a_token_that_cannot_be_sent_is_refused(tmp_path, text):
    (tmp_path / "token").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="must be printable ASCII"):
        token_of(check(values(token_file="token"), tmp_path))


@pytest.mark.parametrize("key", ["", "  ", "sk-\n-secret", "sk-ключ-secret"])
def test_a_servers_key_that_cannot_be_sent_is_refused_and_not_told(key):
    server = {"name": "lm", "kind": "http", "server": "vllm", "url": "http://127.0.0.1:8000", "ready_url": "http://a/"}
    told = "\n".join(problems(values(service=[{**server, "api_key": key}])))
    assert "service.0.api_key" in told
    assert "must be printable ASCII, and not empty" in told
    assert "secret" not in told
    kept = check(values(service=[{**server, "api_key": "sk-secret\n"}]), Path("/")).service[0]
    assert kept.api_key.get_secret_value() == "sk-secret"


def test_a_token_from_a_file_or_the_environment(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("sesame\n")
    assert token_of(check(values(token_file="token"), tmp_path)) == "sesame"
    monkeypatch.setenv("BROKER_TOKEN", "open")
    assert token_of(check(values(token_env="BROKER_TOKEN"), tmp_path)) == "open"
    with pytest.raises(ConfigError, match="cannot read"):
        token_of(check(values(token_file="none"), tmp_path))
    assert token_of(check(values(), tmp_path)) is None


def test_the_token_is_in_no_repr():
    assert "sesame" not in repr(check(values(token="sesame"), Path("/")))


@pytest.mark.parametrize("content", ["x = ", "x = 1\nx = 2", "\xff"])
def test_a_file_that_is_not_toml(tmp_path, content):
    (tmp_path / "b.toml").write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"is not TOML|cannot read"):
        load(tmp_path / "b.toml")
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path / "none.toml")


def test_an_owner_has_its_servers_name():
    service = {
        "name": "lm",
        "kind": "http",
        "server": "vllm",
        "url": "http://127.0.0.1:8000",
        "ready_url": "http://127.0.0.1:8000/health",
        "owner": {"kind": "systemd", "unit": "vllm.service"},
    }
    assert check(values(service=[service]), Path("/")).service[0].owner.name == "lm"


def test_the_example_names_every_key_of_its_kinds():
    text = (EXAMPLES[0].parent / "child.toml").read_text(encoding="utf-8")
    config = load(EXAMPLES[0].parent / "child.toml")
    for part in (config.lease, config.memory):
        for name in type(part).model_fields:
            assert f"{name} =" in text, name
    assert tomllib.loads(text)["service"][0]["ready"]["url"]
