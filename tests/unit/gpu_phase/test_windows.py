"""GPU_PHASE_WINDOWS: hours read, asked and kept, over midnight and over changes of the clock; and what a tick makes of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from phase_rows import NOON, POLICY, READY, RENEWED, RUNNING, STOPPED, audio_now, leased, seen, state
from phase_views import view_of

from voxint.gpu_phase.decide import decide
from voxint.gpu_phase.model import Cause, Phase, RequestKind, WorkSeen
from voxint.gpu_phase.outcomes import Free
from voxint.gpu_phase.windows import ALWAYS, Windows
from voxint.gpu_phase.wording import notices, phases, requests
from voxint.settings import SettingsError, load_settings

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = Windows.parse("22:00-07:00", UTC)
MINUTE = timedelta(minutes=1)


def at(hour, minute=0, *, day=4, zone=UTC):
    return datetime(2026, 5, day, hour, minute, tzinfo=zone)


@pytest.mark.parametrize(
    ("text", "stretches"),
    [
        ("", ()),
        (" , ", ()),
        ("22:00-07:00", ((1320, 420),)),
        ("9:05 - 17:30, 22:00-24:00", ((545, 1050), (1320, 1440))),
        ("00:00-24:00", ((0, 1440),)),
    ],
)
def test_hours_are_read(text, stretches):
    assert Windows.parse(text).stretches == stretches


@pytest.mark.parametrize("text", ["22-7", "22:00", "24:00-07:00", "07:00-07:00", "07:60-08:00", "07:00-24:01", "x"])
def test_what_is_no_stretch_of_hours_is_refused_in_words(text):
    with pytest.raises(ValueError, match="must be hours of the day as 22:00-07:00"):
        Windows.parse(text)


@pytest.mark.parametrize(
    ("now", "opened", "opens", "closes"),
    [
        (at(21, 59), False, at(22), None),
        (at(22), True, None, at(7, day=5)),
        (at(23, 59), True, None, at(7, day=5)),
        (at(0, day=5), True, None, at(7, day=5)),
        (at(6, 59), True, None, at(7)),
        (at(7), False, at(22), None),
    ],
)
def test_a_night_goes_over_midnight(now, opened, opens, closes):
    assert (NIGHT.open_at(now), NIGHT.opens_at(now), NIGHT.closes_at(now)) == (opened, opens, closes)


def test_no_stretch_is_no_limit():
    assert (ALWAYS.open_at(NOON), ALWAYS.opens_at(NOON), ALWAYS.closes_at(NOON)) == (True, None, None)
    assert not ALWAYS
    assert NIGHT


def test_a_whole_day_never_ends():
    for text in ("00:00-24:00", "00:00-12:00, 12:00-24:00", "07:00-22:00, 22:00-07:00"):
        windows = Windows.parse(text, UTC)
        assert windows.closes_at(NOON) is None
        assert windows.opens_at(NOON) is None


def test_stretches_that_touch_go_on():
    windows = Windows.parse("22:00-24:00, 00:00-07:00", UTC)
    assert windows.closes_at(at(23)) == at(7, day=5)


def test_the_next_of_several_stretches_is_named():
    windows = Windows.parse("22:00-07:00, 12:30-13:30", UTC)
    assert windows.opens_at(NOON) == at(12, 30)
    assert windows.opens_at(at(14)) == at(22)


def test_the_hours_are_those_of_the_zone():
    windows = Windows.parse("22:00-07:00", timezone(timedelta(hours=2)))
    assert windows.opens_at(at(19, 59)) == at(20)
    assert windows.closes_at(at(20)) == at(5, day=5)


def test_the_machines_own_zone_is_used_where_none_is_given():
    local = at(12).astimezone()
    windows = Windows.parse(f"{local.hour:02d}:00-{(local.hour + 1) % 24:02d}:00")
    assert windows.open_at(at(12))
    assert not windows.open_at(at(14))
    assert windows.opens_at(at(14)) == at(12, day=5)


def test_the_night_in_which_the_clock_is_put_forward_is_an_hour_shorter():
    windows = Windows.parse("22:00-07:00", BERLIN)
    begin = datetime(2026, 3, 28, 22, tzinfo=BERLIN).astimezone(UTC)
    assert windows.closes_at(begin) - begin == timedelta(hours=8)
    autumn = datetime(2026, 10, 24, 22, tzinfo=BERLIN).astimezone(UTC)
    assert windows.closes_at(autumn) - autumn == timedelta(hours=10)


def test_an_hour_that_the_clock_leaves_out_is_passed():
    windows = Windows.parse("02:15-02:45", BERLIN)
    before = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
    assert windows.opens_at(before) > before


MINUTES = st.integers(0, 24 * 60 - 1)
MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis adds the zone


@given(st.lists(st.tuples(MINUTES, MINUTES).filter(lambda pair: pair[0] != pair[1]), max_size=3), MOMENTS)
def test_what_is_said_of_the_next_change_holds(stretches, now):
    windows = Windows(tuple(stretches), UTC)
    opens_at, closes_at = windows.opens_at(now), windows.closes_at(now)
    if opens_at is not None:
        assert not windows.open_at(now)
        assert now < opens_at <= now + timedelta(days=1)
        assert windows.open_at(opens_at)
        assert not windows.open_at(opens_at - timedelta(microseconds=1))
    if closes_at is not None:
        assert windows.open_at(now)
        assert now < closes_at <= now + timedelta(days=1, minutes=1)
        assert not windows.open_at(closes_at)
        assert windows.open_at(closes_at - timedelta(microseconds=1))
    if opens_at is None and closes_at is None and stretches:
        assert all(windows.open_at(now + n * MINUTE) for n in range(0, 24 * 60, 7))


# --- what a tick makes of it; the rows' moment is noon ------------------------------------------------------------

WAITING = seen(services=STOPPED, llm=READY, status=Free(), work=WorkSeen(gpu_queued=True))
LONG = POLICY.min_dwell.total_seconds()  # 100 s


def tick(before, what, hours):
    return decide(before, what, replace(POLICY, windows=Windows.parse(hours, UTC)))


@pytest.mark.parametrize(
    ("hours", "cause"),
    [
        ("", Cause.WORK_WAITS),
        ("12:00-13:00", Cause.WORK_WAITS),
        ("11:00-12:02", Cause.WORK_WAITS),
        ("11:00-12:01", Cause.HELD_OFF),  # 60 s are left, and a stay in audio is 100 s at least
        ("11:00-12:00", Cause.HELD_OFF),
        ("12:01-13:00", Cause.HELD_OFF),
    ],
)
def test_a_switch_begins_within_the_hours_only(hours, cause):
    assert tick(state(Phase.LLM, LONG), WAITING, hours).cause is cause


def test_exactly_min_dwell_is_room_enough():
    policy = replace(POLICY, windows=Windows.parse("11:00-12:02", UTC), min_dwell=timedelta(seconds=120))
    assert decide(state(Phase.LLM, 120), WAITING, policy).cause is Cause.WORK_WAITS
    policy = replace(policy, min_dwell=timedelta(seconds=120, microseconds=1))
    assert decide(state(Phase.LLM, 121), WAITING, policy).cause is Cause.HELD_OFF


def test_audio_now_overrides_the_hours():
    asked = replace(WAITING, request=audio_now(Phase.LLM))
    assert tick(state(Phase.LLM, 1), asked, "22:00-07:00").cause is Cause.AUDIO_NOW


AT_WORK = seen(services=RUNNING, renewal=RENEWED, work=WorkSeen(gpu_queued=True, gpu_in_progress=True))


@pytest.mark.parametrize(
    ("hours", "age", "cause"),
    [
        ("11:00-12:00", 600, Cause.WINDOW_CLOSED),  # begun at 11:50, within the hours, which are over now
        ("11:00-12:00", 10, Cause.WINDOW_CLOSED),  # before min dwell too
        ("11:00-12:01", 600, Cause.WORKING),
        ("11:55-12:00", 600, Cause.WORKING),  # begun outside the hours: an operator asked for it
        ("22:00-07:00", 600, Cause.WORKING),
        ("", 600, Cause.WORKING),
    ],
)
def test_the_end_of_the_hours_ends_the_audio_that_they_let_begin(hours, age, cause):
    got = tick(leased(Phase.AUDIO, age), AT_WORK, hours)
    assert got.cause is cause
    assert got.state.phase is (Phase.DRAINING if cause is Cause.WINDOW_CLOSED else Phase.AUDIO)


# --- what people read ---------------------------------------------------------------------------------------------


def shown(hours, **values):
    policy = replace(POLICY, windows=Windows.parse(hours, UTC))
    return view_of(Phase.LLM, policy=policy, gpu=(3, 0), **values)


def test_status_banner_and_request_name_the_hours():
    view = shown("22:00-07:00")
    assert view.waits_for_window == datetime(2026, 11, 30, 22, tzinfo=UTC)
    line = phases.next_try(view, UTC)
    assert line.endswith(": the hours for audio are 22:00-07:00")
    assert "22:00" in line.partition(": the hours")[0]
    (banner,) = [note.text for note in notices.notices(view, UTC) if "queued" in note.text]
    assert "It begins at 22:00:00 UTC: the hours for audio are 22:00-07:00." in banner
    assert "It overrides GPU_PHASE_WINDOWS (22:00-07:00)." in requests.next_step(
        RequestKind.AUDIO_NOW, view, UTC, woken=True
    )


def test_within_the_hours_nothing_is_said_of_them():
    view = shown("08:00-18:00")
    assert view.waits_for_window is None
    assert "hours" not in phases.next_try(view, UTC)
    told = [note.text for note in notices.notices(view, UTC)]
    assert told
    assert "hours" not in " ".join(told)


def test_too_late_in_a_window_waits_for_the_next():
    view = shown("11:00-12:01")
    assert view.next_try.at == datetime(2026, 12, 1, 11, tzinfo=UTC)


# --- the setting --------------------------------------------------------------------------------------------------

SHARING = {
    "GPU_PHASE_ENABLED": "true",
    "COMPUTE_TIER": "gpu",
    "GPU_LEASE_ACQUIRE_URL": "http://127.0.0.1:1/a",
    "GPU_LEASE_RELEASE_URL": "http://127.0.0.1:1/r",
    "GPU_LEASE_STATUS_URL": "http://127.0.0.1:1/s",
}
"""As a broker's three addresses stand in the environment."""


def test_the_setting_reaches_the_policy():
    assert str(load_settings(SHARING | {"GPU_PHASE_WINDOWS": "22:00-7:00"}).policy.windows) == "22:00-07:00"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("at night", "must be hours of the day as 22:00-07:00"),
        ("12:00-12:05", "each stretch must be at least as long as GPU_PHASE_MIN_DWELL_SECONDS (600)"),
    ],
)
def test_hours_that_cannot_be_used_are_refused(value, problem):
    with pytest.raises(SettingsError) as refused:
        load_settings(SHARING | {"GPU_PHASE_WINDOWS": value})
    (line,) = refused.value.problems
    assert line.startswith("GPU_PHASE_WINDOWS: ")
    assert problem in line
