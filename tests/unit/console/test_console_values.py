"""The pages' values: what a recording waits for, the timeline's stretches and its picture, and who may ask."""

from __future__ import annotations

import itertools
from datetime import UTC, timedelta
from pathlib import Path

import pytest
from phase_views import NOON, answered, state_of, view_of

from voxint.console import views
from voxint.console.attempts import Attempts
from voxint.console.door import cookies_in
from voxint.console.guard import Guard, _is_own, host_name
from voxint.console.picture import WIDTH, picture
from voxint.console.server import bind_address
from voxint.gpu_phase.model import Cause, Lane, Phase
from voxint.gpu_phase.store import Event
from voxint.gpu_phase.timeline import OWNERS, Owner, stretches
from voxint.recordings.run import Run
from voxint.settings import SettingsError

LANES = {"acquire": Lane.GPU, "transcribe": Lane.GPU, "enhance_match": Lane.POST}
DAY = NOON - timedelta(hours=24)


def run(stage="acquire", status="queued", **values):
    return Run(7, "talk", "/s", "file", status, stage, Path("/m"), NOON, **values)


@pytest.mark.parametrize(
    ("stage", "status", "view", "state"),
    [
        ("acquire", "queued", view_of(Phase.LLM), "waits for the GPU"),
        ("acquire", "queued", view_of(Phase.AUDIO), "queued"),
        ("acquire", "queued", view_of(Phase.AUDIO, paused_at=NOON), "waits: the queue is paused"),
        ("enhance_match", "queued", view_of(Phase.AUDIO), "waits for the language model"),
        ("enhance_match", "queued", view_of(Phase.LLM, state=answered()), "queued"),
        ("enhance_match", "queued", view_of(Phase.LLM, state=answered(), paused_at=NOON), "queued"),
        ("acquire", "running", view_of(Phase.AUDIO), "in progress"),
        ("acquire", "done", view_of(Phase.LLM), "done"),
        ("acquire", "failed", view_of(Phase.LLM), "failed"),
    ],
)
def test_what_a_recording_waits_for(stage, status, view, state):
    assert views.lane_state(run(stage, status), view, LANES) == state


def test_a_row_shows_stage_progress_and_trouble():
    row = views.run_row(run("transcribe", "running", progress=0.426), view_of(Phase.AUDIO), LANES, UTC)
    assert (row.stage, row.stage_number, row.stage_count, row.percent) == ("Transcribe", 2, 3, 43)
    assert views.run_row(run(status="done"), view_of(Phase.LLM), LANES, UTC).stage_number == 3
    assert views.run_row(run(error="bad <b>"), view_of(Phase.LLM), LANES, UTC).trouble == "bad <b>"
    assert views.run_row(run(waiting_for="503"), view_of(Phase.LLM), LANES, UTC).trouble == "503"
    assert views.run_row(run(warnings=("a", "b")), view_of(Phase.LLM), LANES, UTC).trouble == "a; b"


def test_the_summary_carries_the_banner():
    page = views.runs_page(view_of(Phase.LLM, gpu=(3, 0)), [], None, LANES, UTC)
    assert page.summary == "Waiting for the GPU - 0 in progress, 3 queued"
    assert (page.strip, page.strip_note) == ("0 in progress, 3 queued", "Waiting for the GPU")
    assert views.runs_page(view_of(Phase.LLM), [], None, LANES, UTC).summary == "Nothing is queued"


def test_the_panel_leaves_out_what_is_not_there_and_never_shows_the_lease():
    panel = views.panel(view_of(Phase.AUDIO), UTC)
    assert [name for name, _ in panel.facts] == ["Lease expires", "GPU lane", "Post lane"]
    assert "b7c1" not in str(panel)
    assert panel.words == "Voxint has the GPU; recordings are worked on"


def event(minutes, before, after, cause=Cause.WAITING):
    return Event(
        NOON - timedelta(minutes=minutes), before and Phase(before), Phase(after), cause, None, 1, None, 0, 0, 0, 0
    )


TURN = [
    event(90, "llm", "draining_post", Cause.WORK_WAITS),
    event(90, "draining_post", "acquiring", Cause.POST_DRAINED),
    event(80, "acquiring", "starting_services", Cause.GRANTED),
    event(75, "starting_services", "audio", Cause.SERVICES_HEALTHY),
    event(15, "audio", "draining", Cause.QUEUE_EMPTY),
    event(15, "draining", "stopping_services", Cause.DRAINED),
    event(12, "stopping_services", "releasing", Cause.SERVICES_STOPPED),
    event(10, "releasing", "llm", Cause.RELEASED),
]


def test_stretches_fill_the_window_without_gaps():
    found = stretches(TURN, state_of(Phase.LLM), DAY, NOON)
    assert (found[0].since, found[-1].until) == (DAY, NOON)
    assert all(one.until == two.since for one, two in itertools.pairwise(found))
    assert sum((stretch.length for stretch in found), timedelta(0)) == timedelta(hours=24)
    assert [stretch.phase.value for stretch in found] == [
        "llm",
        "acquiring",
        "starting_services",
        "audio",
        "stopping_services",
        "releasing",
        "llm",
    ]
    assert found[0].cause is None
    assert found[3].cause is Cause.SERVICES_HEALTHY


def test_a_window_without_a_change_is_the_stored_phase():
    [only] = stretches([], state_of(Phase.AUDIO), DAY, NOON)
    assert (only.phase, only.length) == (Phase.AUDIO, timedelta(hours=24))
    assert stretches([], None, DAY, NOON)[0].owner is Owner.NOBODY_KNOWN
    first = stretches([event(60, None, "llm", Cause.FIRST_TICK)], state_of(Phase.LLM), DAY, NOON)
    assert [stretch.owner for stretch in first] == [Owner.NOBODY_KNOWN, Owner.LANGUAGE_MODEL]
    assert set(OWNERS) == {None, *Phase}


def test_the_picture_tells_the_turn():
    drawn = picture(stretches(TURN, state_of(Phase.LLM), DAY, NOON), UTC)
    assert drawn.summary == (
        "Who had the GPU from 2026-11-29 12:00:00 UTC to 2026-11-30 12:00:00 UTC: language model 94%, recordings 4%,"
        " changing hands 1%. 1 audio window began."
    )
    assert all(0 <= bar.x <= WIDTH and bar.width > 0 for bar in drawn.bars)
    assert [mark.label for mark in drawn.marks] == ["16:00", "20:00", "00:00", "04:00", "08:00"]
    audio = next(bar for bar in drawn.bars if bar.kind == "audio")
    assert audio.words == "audio from 2026-11-30 10:45:00 UTC for 1 h, because all model services were up"
    assert picture([], UTC) is None


@pytest.mark.parametrize(
    ("header", "name"),
    [("voxint.local:8080", "voxint.local"), ("LOCALHOST", "localhost"), ("[::1]:8080", "::1"), ("", "")],
)
def test_the_host_header_s_name(header, name):
    assert host_name(header) == name


def test_allowed_hosts():
    guard = Guard(None, ("localhost", "*.example.org"))
    assert guard._is_allowed("localhost")
    assert guard._is_allowed("a.example.org")
    for name in ("evil.example", "example.org", "localhost.evil", ""):
        assert not guard._is_allowed(name)


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "http://]", "null", "", "//", "http://localhost:8080:1"])
def test_an_origin_that_cannot_be_read_is_another_site_s(origin):
    assert not _is_own(origin, "localhost:8080", "http")
    assert _is_own("http://localhost:8080", "localhost:8080", "http")


@pytest.mark.parametrize(
    "strange",
    [
        'prefs={"a":[1,2]}',
        "list=[1]",
        "path=/",
        "secure",
        'half="open',
        "k\u00e4se=1",
        "=",
        "a b=c d",
        "expires=soon",
        "x=(a, b)",
    ],
)
def test_a_cookie_of_another_server_of_this_host_hides_none_of_ours(strange):
    found = cookies_in(f"{strange}; voxint-8080=mine; {strange}; voxint-form-8080=other")
    assert (found["voxint-8080"], found["voxint-form-8080"]) == ("mine", "other")


def test_an_attempt_counts_from_its_beginning_until_it_succeeds_or_is_taken_back():
    now = [0.0]
    attempts = Attempts(most=3, within_seconds=60, now=lambda: now[0])
    assert [attempts.begin("10.0.0.1") for _ in range(5)] == [0, 0, 0, 60, 60]
    assert attempts.begin("10.0.0.2") == 0
    attempts.take_back("10.0.0.1")
    assert attempts.wait_seconds("10.0.0.1") == 0
    assert attempts.begin("10.0.0.1") == 0
    now[0] = 59
    assert attempts.begin("10.0.0.1") == 1
    attempts.succeeded("10.0.0.1")
    assert attempts.begin("10.0.0.1") == 0
    attempts.take_back("10.0.0.9")


@pytest.mark.parametrize(("text", "pair"), [("127.0.0.1:8080", ("127.0.0.1", 8080)), ("[::1]:1", ("::1", 1))])
def test_where_the_console_listens(text, pair):
    assert bind_address(text) == pair


@pytest.mark.parametrize("text", ["8080", ":8080", "localhost", "localhost:http", "h:70000"])
def test_what_is_no_address_to_listen_on(text):
    with pytest.raises(SettingsError, match="CONSOLE_BIND"):
        bind_address(text)
