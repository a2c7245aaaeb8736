"""Values of settings that would otherwise end in a trace, show a part of a password, or stop a tick."""

from __future__ import annotations

import re

import pytest
from sqlalchemy.engine import make_url

from voxint.db.plain import understood
from voxint.settings import LONGEST_SECONDS, SettingsError, load_settings

SECRET = "hunter"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "postgresql://voxint:p@hunter@db:5432/voxint"),
        ("DATABASE_URL", "postgresql://voxint:p@ss:hunter@db:5432/voxint"),
        ("DATABASE_URL", "postgresql://voxint:p@db:hunter/voxint"),
        ("DATABASE_URL", "mysql://voxint:hunter@db/voxint"),
        ("DATABASE_URL", "hunter"),
        ("REDIS_URL", "redis:6379/hunter"),
        ("REDIS_URL", "amqp://:hunter@rabbit:5672/0"),
        ("REDIS_URL", "redis://:hunter/word@redis:6379/0"),
        ("REDIS_URL", "redis://:hunter#word@redis:6379/0"),
    ],
)
def test_an_address_that_cannot_be_taken_apart_is_refused_without_its_password(name, value):
    with pytest.raises(SettingsError, match=rf"^{name}: ") as caught:
        load_settings({name: value})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("postgresql://voxint:p%40ss%3Aword@db:5432/voxint", "db"),
        ("postgresql+psycopg://voxint:pa:ss/word@db/voxint", "db"),
        ("postgres://voxint@[::1]:5432/voxint?sslmode=require", "::1"),
        ("postgresql://postgres@/voxint?host=/run/voxint", ""),
        ("postgresql:///voxint?host=/run/a@b", ""),
        ("postgresql://db", "db"),
    ],
)
def test_an_address_that_the_engine_takes_is_taken(url, host):
    loaded = load_settings({"DATABASE_URL": url})
    assert loaded.database_url.get_secret_value() == url
    assert (make_url(url).host or "") == host


def test_an_address_that_the_driver_would_cut_at_the_password_is_not_given_to_it():
    assert understood("postgresql://voxint:password@db/voxint")
    assert not understood("postgresql://voxint:12/34@db/voxint")


@pytest.mark.parametrize("name", ["REDIS_URL"])
@pytest.mark.parametrize("url", ["redis://:p%2Fw@redis:6379/0", "unix:///run/valkey.sock", "rediss://redis"])
def test_addresses_of_redis(name, url):
    assert load_settings({name: url}).redis_url.get_secret_value() == url


SPANS = sorted(name for name in load_settings({}).__class__.model_fields if re.search(r"_(seconds|days)$", name))


@pytest.mark.parametrize("name", SPANS)
@pytest.mark.parametrize("value", ["1e12", "1e300"])
def test_no_span_is_longer_than_a_date_can_say(name, value):
    with pytest.raises(SettingsError, match=rf"^{name.upper()}: "):
        load_settings({name.upper(): value})


def test_the_longest_span_can_be_counted():
    urls = {f"GPU_LEASE_{name}_URL": "http://broker:9100/gpu" for name in ("ACQUIRE", "RELEASE", "STATUS")}
    sharing = {"GPU_PHASE_ENABLED": "true", "COMPUTE_TIER": "gpu", **urls}
    loaded = load_settings({**sharing, "GPU_PHASE_MAX_AUDIO_SECONDS": str(LONGEST_SECONDS)})
    assert loaded.policy.max_audio.total_seconds() == LONGEST_SECONDS


def test_a_list_of_commas_names_as_little_as_a_blank():
    assert load_settings({"GPU_PHASE_SERVICES": " , ,".strip()}) == load_settings({})
