"""Every form of the broker's answers, legal and not, and what becomes of it."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxint.gpu_phase.outcomes import Done, Failed, Free, Granted, Held, Lost, Pending, Refused
from voxint.lease.answers import Answer, acquired, clock_difference, released, renewed, status

NOW = datetime(2026, 10, 2, 16, 0, tzinfo=UTC)
TTL = timedelta(seconds=600)
AT = datetime(2026, 10, 2, 18, 40, tzinfo=UTC)


def lease(**fields):
    return Answer(200, json.dumps({"lease_id": "b7c1", **fields}).encode())


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2026-10-02T18:40:00Z", AT),
        ("2026-10-02T18:40:00z", AT),
        ("2026-10-02T18:40:00+02:00", AT - timedelta(hours=2)),
        ("2026-10-02T18:40:00.5Z", AT + timedelta(milliseconds=500)),
        ("2026-10-02T18:40:00.123456789Z", AT + timedelta(microseconds=123456)),
        ("2026-10-02T18:40:00", AT),
        ("2026-10-02", datetime(2026, 10, 2, tzinfo=UTC)),
    ],
)
def test_a_readable_expiry_is_respected(written, read):
    for outcome in (acquired(lease(expires_at=written), NOW, TTL), renewed(lease(expires_at=written), NOW, TTL)):
        assert outcome == Granted("b7c1", read)


@pytest.mark.parametrize("body", [lease(), lease(expires_at=None)])
def test_no_expiry_relies_on_the_release(body):
    assert acquired(body, NOW, TTL) == Granted("b7c1", None)


@pytest.mark.parametrize(
    "written",
    ["", 1790966400, "soon", True, [], {}, 1.5, "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "2026-13-01"],
)
def test_an_unreadable_expiry_keeps_the_lease_and_says_so(written):
    outcome = acquired(lease(expires_at=written), NOW, TTL)
    assert isinstance(outcome, Granted)
    assert (outcome.lease_id, outcome.expires_at) == ("b7c1", NOW + TTL)
    assert "expires_at cannot be read" in outcome.warning


DATE = "Fri, 02 Oct 2026 {:02d}:00:00 GMT"


@pytest.mark.parametrize(
    ("expires", "date", "read"),
    [
        # in the past by our clock; the broker's clock agrees, or says nothing: it is over
        ("2026-10-02T15:59:00Z", DATE.format(16), "2026-10-02T15:59:00+00:00"),
        ("2026-10-02T15:59:00Z", None, "2026-10-02T15:59:00+00:00"),
        ("2026-10-02T15:59:00Z", "yesterday", "2026-10-02T15:59:00+00:00"),
        # the broker's clock is two hours behind: ten minutes there are ten minutes here
        ("2026-10-02T14:10:00Z", DATE.format(14), "2026-10-02T16:10:00+00:00"),
        # and one hour ahead: the lease is not an hour longer for it
        ("2026-10-02T17:10:00Z", DATE.format(17), "2026-10-02T16:10:00+00:00"),
        # expired on both clocks
        ("2026-10-02T13:10:00Z", DATE.format(14), "2026-10-02T13:10:00+00:00"),
        ("2026-10-02T16:10:00Z", "Fri, 02 Oct 2026 16:00:04 GMT", "2026-10-02T16:10:00+00:00"),
    ],
)
def test_clocks_that_differ(expires, date, read):
    answer = Answer(200, lease(expires_at=expires).body, date=date)
    outcome = acquired(answer, NOW, TTL)
    assert outcome.expires_at == datetime.fromisoformat(read)
    moved = outcome.expires_at != datetime.fromisoformat(expires)
    assert (outcome.warning is not None) is moved


@pytest.mark.parametrize("date", ["", "x", "Fri, 99 Oct 2026 16:00:00 GMT", "1 2 3 4 5"])
def test_a_date_header_that_cannot_be_read_is_none(date):
    assert clock_difference(Answer(200, date=date), NOW) is None


UNUSABLE = [
    b"<html>login</html>",
    b"[]",
    b'"ok"',
    b"",
    b"null",
    b'{"lease_id":null}',
    b"{}",
    b'\xef\xbb\xbf{"lease_id":"b7c1"}',
    b'{"lease_id":"b7',
    b"\xff\xfe",
    b"[" * 100_000,
    *(
        json.dumps({"lease_id": bad}).encode()
        for bad in (123, "", True, {}, [], 1.0, "x" * 10_000, "b7c1\n", "a\x00b", "a\x9bb", "\ud83d")
    ),
]


@pytest.mark.parametrize("body", UNUSABLE)
def test_a_200_without_a_usable_lease_is_neither_yes_nor_no(body):
    answer = Answer(200, body)
    for outcome in (acquired(answer, NOW, TTL), renewed(answer, NOW, TTL)):
        assert isinstance(outcome, Failed)
        assert "without a usable lease" in outcome.reason
    assert isinstance(status(answer, NOW), Failed)
    assert released(answer) == Done()


@pytest.mark.parametrize("usable", ["123", "ü", "x" * 1_024, " b7 c1 ", "null"])
def test_a_usable_lease_id_is_taken_exactly(usable):
    assert acquired(Answer(200, json.dumps({"lease_id": usable}).encode()), NOW, TTL) == Granted(usable, None)


@pytest.mark.parametrize("body", [None, b"", b"<html>", b"[1]", b'{"state":"pending"}'])
def test_some_codes_speak_for_themselves(body):
    assert acquired(Answer(202, body), NOW, TTL) == Pending()
    assert acquired(Answer(409, body), NOW, TTL) == Refused()
    assert isinstance(renewed(Answer(404, body), NOW, TTL), Lost)
    assert isinstance(renewed(Answer(409, body), NOW, TTL), Lost)
    assert released(Answer(200, body)) == Done()
    assert released(Answer(404, body)) == Done()
    assert released(Answer(202, body)) == Pending()


@pytest.mark.parametrize("code", [100, 201, 204, 301, 400, 401, 403, 404, 405, 418, 422, 429, 500, 503])
def test_other_codes_decide_nothing(code):
    answer = Answer(code, b'{"lease_id":"b7c1","state":"free"}')
    if code != 404:
        assert isinstance(renewed(answer, NOW, TTL), Failed)
        assert isinstance(released(answer), Failed)
    for outcome in (acquired(answer, NOW, TTL), status(answer, NOW)):
        assert isinstance(outcome, Failed)
        assert str(code) in outcome.reason
    assert isinstance(renewed(Answer(202), NOW, TTL), Failed)


def test_an_error_keeps_what_the_broker_says_of_it():
    body = json.dumps({"error": "the language model did not come back"}).encode()
    assert released(Answer(500, body)).reason.endswith("500: the language model did not come back")
    assert released(Answer(500, b"out of memory")).reason.endswith("500: out of memory")
    assert released(Answer(502, b"<html>gateway</html>")).reason == "the broker answered 502"
    hidden = Answer(500, b'{"error":"' + b"y" * 155 + b' sesame-open"}', secrets=("sesame-open",))
    assert "sesa" not in released(hidden).reason


def wait(value):
    return acquired(Answer(409, b'{"holder":"x","retry_after_seconds":' + value + b"}"), NOW, TTL)


@pytest.mark.parametrize(
    ("value", "seconds"), [(b"300", 300), (b"0", 0), (b"12.5", 12.5), (b"3600", 3600), (b"86400000", 86_400_000)]
)
def test_a_wait_is_honoured_whole(value, seconds):
    assert wait(value) == Refused("x", timedelta(seconds=seconds))


@pytest.mark.parametrize("value", [b"1e12", b"1e300", b"1" + b"0" * 400])
def test_a_wait_that_no_timestamp_can_hold_is_cut(value):
    outcome = wait(value)
    assert outcome.holder == "x"
    assert NOW + outcome.retry_after < datetime.max.replace(tzinfo=UTC)
    assert outcome.retry_after > timedelta(days=365_000)


@pytest.mark.parametrize("value", [b"-5", b'"300"', b'"soon"', b"true", b"[1]", b"1e400", b"NaN", b"-Infinity"])
def test_a_wait_of_the_wrong_kind_is_ignored_and_said_so(value):
    outcome = wait(value)
    assert (outcome.holder, outcome.retry_after) == ("x", None)
    assert "retry_after_seconds" in outcome.warning
    assert "ignored" in outcome.warning


def test_no_wait_is_no_warning():
    assert wait(b"null") == Refused("x")


def test_status_says_free_held_or_nothing():
    def of(**fields):
        return status(Answer(200, json.dumps(fields).encode()), NOW)

    assert of(state="free", holder=None, lease_id=None) == Free()
    assert of(state="held", holder="voxint", lease_id="b7c1", expires_at="2026-10-02T18:40:00Z") == Held(
        "voxint", "b7c1", AT
    )
    assert of(state="held", holder="other", lease_id="zz9") == Held("other", "zz9")
    assert of(state="held", holder="voxint", lease_id=None) == Held("voxint", None)
    assert of(state="held", holder=7, lease_id=7, expires_at="soon") == Held(None, None)
    for state in (None, "FREE", "pending", 1, True, ["free"]):
        assert isinstance(of(state=state), Failed)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
bodies = st.one_of(
    st.none(),
    st.binary(),
    json_values.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            ("lease_id", "expires_at", "state", "holder", "retry_after_seconds", "error", "detail"), json_values
        ),
    ).map(lambda value: json.dumps(value).encode()),
)


@given(st.integers(100, 599), bodies, st.none() | st.text())
def test_nothing_raises_and_what_comes_out_can_be_stored(code, body, date):
    answer = Answer(code, body, date=date)
    for outcome in (acquired(answer, NOW, TTL), renewed(answer, NOW, TTL), released(answer), status(answer, NOW)):
        if isinstance(outcome, Granted):
            assert outcome.lease_id.encode()
            assert outcome.expires_at is None or outcome.expires_at.utcoffset() == timedelta(0)
        if isinstance(outcome, Refused) and outcome.retry_after is not None:
            assert math.isfinite(outcome.retry_after.total_seconds())
            assert NOW + outcome.retry_after >= NOW
