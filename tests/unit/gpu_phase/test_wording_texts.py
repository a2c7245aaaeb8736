"""Every text about the phase, as a text: each phase, with 0, 1 and 3 recordings, and what makes a text another one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta

import pytest
from phase_views import NOON, answered, state_of, view_of

from voxint.gpu_phase.model import EDGES, Cause, Phase, Request, RequestKind
from voxint.gpu_phase.policy import Policy
from voxint.gpu_phase.reasons import NAMES_NO_LEASE
from voxint.gpu_phase.view import document
from voxint.gpu_phase.wording import figures, notices, phases, requests

BANNERS = {
    (None, 0): ["warn: No phase is recorded yet: the GPU sharing task has not run."],
    (None, 1): ["warn: No phase is recorded yet: the GPU sharing task has not run. 1 recording is queued."],
    (None, 3): ["warn: No phase is recorded yet: the GPU sharing task has not run. 3 recordings are queued."],
    ("llm", 0): [],
    ("llm", 1): [
        "note: Waiting for the GPU. 1 recording is queued; the GPU is serving the language model until the next audio window."
    ],
    ("llm", 3): [
        "note: Waiting for the GPU. 3 recordings are queued; the GPU is serving the language model until the next audio window."
    ],
    ("draining_post", 0): [
        "note: The GPU goes to the recordings as soon as the language model's work in progress has finished."
    ],
    ("draining_post", 1): [
        "note: The GPU goes to the recordings as soon as the language model's work in progress has finished. 1 recording is queued."
    ],
    ("draining_post", 3): [
        "note: The GPU goes to the recordings as soon as the language model's work in progress has finished. 3 recordings are queued."
    ],
    ("acquiring", 0): ["note: The GPU is changing hands: the language model is stopping."],
    ("acquiring", 1): ["note: The GPU is changing hands: the language model is stopping. 1 recording is queued."],
    ("acquiring", 3): ["note: The GPU is changing hands: the language model is stopping. 3 recordings are queued."],
    ("starting_services", 0): ["note: The GPU is changing hands: the model services are starting."],
    ("starting_services", 1): [
        "note: The GPU is changing hands: the model services are starting. 1 recording is queued."
    ],
    ("starting_services", 3): [
        "note: The GPU is changing hands: the model services are starting. 3 recordings are queued."
    ],
    ("audio", 0): [],
    ("audio", 1): [],
    ("audio", 3): [],
    ("draining", 0): [
        "note: The GPU goes back to the language model as soon as the recordings in progress have finished."
    ],
    ("draining", 1): [
        "note: The GPU goes back to the language model as soon as the recordings in progress have finished. 1 recording is queued."
    ],
    ("draining", 3): [
        "note: The GPU goes back to the language model as soon as the recordings in progress have finished. 3 recordings are queued."
    ],
    ("stopping_services", 0): ["note: The GPU is changing hands: the model services are stopping."],
    ("stopping_services", 1): [
        "note: The GPU is changing hands: the model services are stopping. 1 recording is queued."
    ],
    ("stopping_services", 3): [
        "note: The GPU is changing hands: the model services are stopping. 3 recordings are queued."
    ],
    ("releasing", 0): ["note: The GPU is changing hands: the language model is starting."],
    ("releasing", 1): ["note: The GPU is changing hands: the language model is starting. 1 recording is queued."],
    ("releasing", 3): ["note: The GPU is changing hands: the language model is starting. 3 recordings are queued."],
    ("error", 0): [
        "alert: The GPU could not be handed back: the reason is not known. It is tried again at the next tick; `voxint gpu-phase release` tries at once, after the cause is mended. Language-model work is paused."
    ],
    ("error", 1): [
        "alert: The GPU could not be handed back: the reason is not known. It is tried again at the next tick; `voxint gpu-phase release` tries at once, after the cause is mended. Language-model work is paused."
    ],
    ("error", 3): [
        "alert: The GPU could not be handed back: the reason is not known. It is tried again at the next tick; `voxint gpu-phase release` tries at once, after the cause is mended. Language-model work is paused."
    ],
}
DOCTOR = {
    None: (
        "warn",
        "no phase recorded yet: both lanes wait until the GPU sharing task has run. Check that the gpu-phase worker and beat are running",
    ),
    "llm": ("ok", "llm: the language model has the GPU"),
    "draining_post": (
        "ok",
        "draining_post: the language model has the GPU; its work in progress finishes, then the GPU goes to audio",
    ),
    "acquiring": ("ok", "acquiring: the GPU is being handed over: the broker stops the language model"),
    "starting_services": ("ok", "starting_services: Voxint has the GPU; the model services are starting"),
    "audio": ("ok", "audio: Voxint has the GPU; recordings are worked on"),
    "draining": ("ok", "draining: Voxint has the GPU; recordings in progress finish, then the GPU goes back"),
    "stopping_services": ("ok", "stopping_services: Voxint has the GPU; the model services are stopping"),
    "releasing": ("ok", "releasing: the GPU is being handed back: the broker starts the language model"),
    "error": (
        "warn",
        "the GPU could not be handed back: the reason is not known. It is tried again at the next tick; `voxint gpu-phase release` tries at once, after the cause is mended",
    ),
}
REQUESTS = {
    ("audio-now", None): [
        "No phase recorded yet: the request waits for the first run of the GPU sharing task, and is acted on by the tick after it."
    ],
    ("audio-now", "llm"): [
        "The switch to audio begins at once: language-model work in progress (1) finishes first, then the broker frees the GPU and the model services start."
    ],
    ("audio-now", "draining_post"): [
        "The switch to audio is under way: it waits for language-model work in progress (1)."
    ],
    ("audio-now", "acquiring"): ["The switch to audio is under way: the broker is freeing the GPU."],
    ("audio-now", "starting_services"): ["The switch to audio is under way: the model services are starting."],
    ("audio-now", "audio"): ["Voxint has the GPU already: there is nothing to do."],
    ("audio-now", "draining"): [
        "The GPU is going back to the language model. The request is kept, and acted on at the next tick in llm."
    ],
    ("audio-now", "stopping_services"): [
        "The GPU is going back to the language model. The request is kept, and acted on at the next tick in llm."
    ],
    ("audio-now", "releasing"): [
        "The GPU is going back to the language model. The request is kept, and acted on at the next tick in llm."
    ],
    ("audio-now", "error"): [
        "The hand-back has failed and must succeed first; `voxint gpu-phase release` tries it now. The request is kept, and acted on at the next tick in llm."
    ],
    ("release", None): [
        "No phase recorded yet: the request waits for the first run of the GPU sharing task, and is acted on by the tick after it."
    ],
    ("release", "llm"): [
        "The language model has the GPU already. The next switch to audio is held off for 10 min, until 12:10:00 UTC."
    ],
    ("release", "draining_post"): [
        "The switch to audio is called off at once. The next switch to audio is held off for 10 min, until 12:10:00 UTC."
    ],
    ("release", "acquiring"): [
        "The broker is not asked for the GPU again: at once it is told to take back whatever it has granted, and the phase goes to llm."
    ],
    ("release", "starting_services"): ["The model services are stopped at once, and the GPU is handed back."],
    ("release", "audio"): [
        "The hand-back begins at once: no recording begins any more, those in progress (2) finish first, then the model services stop and the GPU is handed back."
    ],
    ("release", "draining"): [
        "The model services are stopped at once, also under recordings in progress (2): their stages go back to the queue, use no attempt, and go on in the next audio window."
    ],
    ("release", "stopping_services"): ["The GPU is being handed back already: there is nothing more to do."],
    ("release", "releasing"): ["The GPU is being handed back already: there is nothing more to do."],
    ("release", "error"): ["The hand-back is tried again at once."],
}


def of(name):
    return Phase(name) if name else None


def told(view):
    return [notice.text for notice in notices.notices(view, UTC)]


@pytest.mark.parametrize(("phase", "waiting"), BANNERS)
def test_the_banner_in_each_phase(phase, waiting):
    found = notices.notices(view_of(of(phase), gpu=(waiting, 0)), UTC)
    assert [f"{notice.level}: {notice.text}" for notice in found] == BANNERS[phase, waiting]


@pytest.mark.parametrize("phase", DOCTOR)
def test_doctors_line_in_each_phase(phase):
    assert phases.sharing_line(view_of(of(phase)), UTC) == DOCTOR[phase]


@pytest.mark.parametrize(("kind", "phase"), REQUESTS)
def test_what_happens_after_a_request_in_each_phase(kind, phase):
    view = view_of(of(phase), gpu=(3, 2), post=(0, 1))
    assert requests.next_step(RequestKind(kind), view, UTC, woken=True) == REQUESTS[kind, phase]


def test_every_phase_and_every_cause_has_words():
    assert set(phases.PHASE_WORDS) == set(Phase)
    assert set(phases.CAUSE_WORDS) == set(Cause)
    assert len(set(phases.CAUSE_WORDS.values())) == len(Cause)
    assert {cause for causes in EDGES.values() for cause in causes} <= set(phases.CAUSE_WORDS)


def test_a_stopped_task_is_an_alert_in_every_phase_and_hides_the_waiting_banner():
    for phase in Phase:
        found = notices.notices(view_of(phase, gpu=(3, 0), ticked=timedelta(seconds=121)), UTC)
        assert (found[0].level, found[0].code) == (notices.Level.ALERT, "task_stopped")
        assert found[0].text == (
            "The GPU sharing task has not run since 2026-11-30 11:57:59 UTC. Nothing changes hands until it runs."
            " 3 recordings are queued."
        )
        assert {notice.code for notice in found} <= {"task_stopped", "error"}
        assert phases.sharing_line(view_of(phase, ticked=timedelta(seconds=121)), UTC)[0] == "warn"


@pytest.mark.parametrize(("tick", "limit"), [(30, 120), (5, 120), (60, 180)])
def test_the_task_counts_as_running_up_to_its_limit(tick, limit):
    policy = Policy(tick=timedelta(seconds=tick))
    assert view_of(Phase.LLM, policy=policy, ticked=timedelta(seconds=limit)).task_running
    assert not view_of(Phase.LLM, policy=policy, ticked=timedelta(seconds=limit, microseconds=1)).task_running
    assert not replace(view_of(Phase.LLM, policy=policy), ticked_at=None).task_running


@pytest.mark.parametrize("phase", [Phase.STOPPING_SERVICES, Phase.RELEASING])
def test_the_alert_stays_while_a_failed_hand_back_is_tried_again(phase):
    state = state_of(phase, last_error="could not hand the GPU back: out of memory.", failures=2, cycle_failed=True)
    first = notices.notices(view_of(phase, state=state, hand_back_failed=True), UTC)[0]
    assert (first.level, first.code) == (notices.Level.ALERT, "error")
    assert first.text == (
        "The GPU could not be handed back: out of memory. It is being tried again now;"
        " `voxint gpu-phase release` tries at once, after the cause is mended. Language-model work is paused."
    )
    assert "error" not in {notice.code for notice in notices.notices(view_of(phase, state=state), UTC)}


def test_an_error_names_when_it_is_tried_again():
    state = state_of(Phase.ERROR, last_error="no answer", failures=1, retry_after=NOON + timedelta(minutes=2))
    assert "It is tried again at 12:02:00 UTC" in told(view_of(Phase.ERROR, state=state))[0]
    asked = requests.next_step(RequestKind.RELEASE, view_of(Phase.ERROR, state=state), UTC, woken=True)
    assert asked == ["The hand-back is tried again at once, and not only at 12:02:00 UTC."]


def test_work_that_waits_for_the_language_model_names_the_endpoint_and_what_to_do():
    state = state_of(Phase.LLM, note="the language model does not answer: llm research connection refused.")
    assert told(view_of(Phase.LLM, state=state, post=(3, 0))) == [
        (
            "Waiting for the language model. 3 language-model jobs are queued; the language model does not answer:"
            " llm research connection refused. Bring it back, or take it out of the settings."
        )
    ]
    assert told(view_of(Phase.LLM, state=state, post=(1, 0)))[0].startswith(
        "Waiting for the language model. 1 language-model job is queued;"
    )
    assert told(view_of(Phase.LLM, state=state)) == []
    assert told(view_of(Phase.LLM, post=(1, 0))) == [
        "Waiting for the language model. 1 language-model job is queued; Voxint is about to ask whether it answers."
    ]
    assert told(view_of(Phase.AUDIO, post=(1, 0))) == [
        (
            "Waiting for the language model. 1 language-model job is queued; the GPU is serving recordings until this audio"
            " window ends."
        )
    ]
    assert told(view_of(Phase.LLM, state=answered(), post=(3, 0))) == []


@pytest.mark.parametrize(
    ("silent", "note", "overdue"),
    [
        (900, "the language model does not answer: llm connection refused", True),
        (899, "the language model does not answer: llm connection refused", False),
        (900, "the broker says that other holds the GPU; the language model does not answer: llm is off", False),
        (900, None, False),
    ],
)
def test_a_language_model_that_stays_away_from_a_free_gpu_is_said_exactly(silent, note, overdue):
    state = state_of(Phase.LLM, age=timedelta(hours=1), note=note)
    view = view_of(Phase.LLM, state=state, post=(2, 0), llm_silent_since=NOON - timedelta(seconds=silent))
    exact = (
        "the broker reports the GPU as free, and for 15 min the language model does not answer: llm connection"
        " refused. Bring it back, or take it out of the settings"
    )
    assert (phases.sharing_line(view, UTC) == ("warn", exact)) is overdue
    alerts = [notice for notice in notices.notices(view, UTC) if notice.level is notices.Level.ALERT]
    assert [notice.text for notice in alerts] == ([f"T{exact[1:]}."] if overdue else [])


def test_a_failed_switch_is_named_behind_the_waiting_banner():
    state = answered(last_error="the broker refused the GPU", failures=2, retry_after=NOON + timedelta(seconds=90))
    state = replace(state, phase_since=NOON - timedelta(hours=1))
    view = view_of(Phase.LLM, state=state, gpu=(3, 0))
    assert told(view) == [
        (
            "Waiting for the GPU. 3 recordings are queued; the GPU is serving the language model until the next audio"
            " window. The last switch failed: The broker refused the GPU. Next try at 12:01:30 UTC."
        )
    ]
    severity, text = phases.sharing_line(view, UTC)
    assert severity == "warn"
    assert text == (
        "llm: the language model has the GPU. The last switch failed (2 failures in a row): the broker refused the"
        " GPU. Next try: 2026-11-30 12:01:30 UTC (in 1 min 30 s): the wait after a failure"
    )


def test_a_paused_queue_says_so_instead():
    view = view_of(Phase.LLM, gpu=(3, 0), paused_at=NOON - timedelta(hours=1), paused_by="ann")
    assert told(view) == ["The queue is paused. 3 recordings are queued."]
    said = requests.next_step(RequestKind.AUDIO_NOW, view, UTC, woken=True)
    assert said[-1] == (
        "The queue is paused: the GPU comes back after 10 min with nothing done, unless that changes meanwhile."
    )


def test_audio_now_with_nothing_queued_says_that_the_gpu_comes_back():
    said = requests.next_step(RequestKind.AUDIO_NOW, view_of(Phase.LLM), UTC, woken=True)
    assert said[-1] == (
        "No recording is queued: the GPU comes back after 10 min with nothing done, unless that changes meanwhile."
    )


@pytest.mark.parametrize(("minutes", "back"), [(0, "in 10 min"), (9, "in 1 min"), (10, "at once"), (90, "at once")])
def test_audio_now_in_audio_with_nothing_queued_says_how_long_it_stays(minutes, back):
    view = view_of(Phase.AUDIO, state=state_of(Phase.AUDIO, age=timedelta(minutes=minutes)))
    said = requests.next_step(RequestKind.AUDIO_NOW, view, UTC, woken=True)
    assert said == [
        "Voxint has the GPU already: there is nothing to do.",
        f"No recording is queued: the GPU goes back {back}, unless that changes meanwhile.",
    ]


def test_audio_now_names_what_it_overrides():
    state = answered(failures=1, last_error="x", retry_after=NOON + timedelta(minutes=8))
    view = view_of(Phase.LLM, state=state, gpu=(1, 0), hold_until=NOON + timedelta(hours=2), hold_by="ann")
    said = requests.next_step(RequestKind.AUDIO_NOW, view, UTC, woken=False)
    assert said[0].startswith("The switch to audio begins at the next tick, within 30 s:")
    assert said[1:] == [
        "It overrides the hold of ann until 14:00:00 UTC.",
        "It does not wait until 12:08:00 UTC.",
    ]


def test_a_release_in_llm_never_shortens_a_longer_backoff():
    state = answered(failures=1, last_error="x", retry_after=NOON + timedelta(minutes=15))
    said = requests.next_step(RequestKind.RELEASE, view_of(Phase.LLM, state=state), UTC, woken=True)
    assert said[0].endswith("held off for 15 min, until 12:15:00 UTC.")


def test_a_request_while_the_task_is_stopped_says_that_it_waits():
    for kind in RequestKind:
        said = requests.next_step(kind, view_of(Phase.AUDIO, gpu=(1, 0), ticked=timedelta(hours=1)), UTC, woken=True)
        assert said[-1] == (
            "But the GPU sharing task has not run since 2026-11-30 11:00:00 UTC: the request waits until it runs again."
        )
        assert "at once" not in " ".join(said)


@pytest.mark.parametrize(
    ("dwelt", "retry", "hold", "binds"),
    [
        (300, None, None, ("12:05:00", "min dwell")),
        (300, 60, None, ("12:05:00", "min dwell")),
        (300, 900, None, ("12:15:00", "backoff")),
        (300, 900, 1200, ("12:20:00", "hold")),
        (300, None, -60, ("12:05:00", "min dwell")),
        (3600, None, None, ("11:10:00", "min dwell")),
    ],
)
def test_the_next_try_is_the_latest_bound_with_its_name(dwelt, retry, hold, binds):
    state = answered(
        age=timedelta(seconds=dwelt),
        failures=1 if retry else 0,
        retry_after=NOON + timedelta(seconds=retry) if retry else None,
    )
    view = view_of(Phase.LLM, state=state, hold_until=NOON + timedelta(seconds=hold) if hold else None)
    following = view.next_try
    assert (f"{following.at:%H:%M:%S}", following.binds) == binds


def test_sharing_off_says_nothing_unless_something_is_held():
    off = Policy(enabled=False)
    assert phases.sharing_line(view_of(None, policy=off), UTC) == ("off", "GPU sharing is off")
    assert told(view_of(None, policy=off, gpu=(3, 0))) == []
    assert told(view_of(Phase.LLM, policy=off, gpu=(3, 0))) == []
    for phase in set(Phase) - {Phase.LLM}:
        severity, text = phases.sharing_line(view_of(phase, policy=off), UTC)
        assert severity == "warn"
        assert f"the stored phase is {phase.value}" in text
        assert "the lease may still be held and the language model stopped" in text
        assert len(told(view_of(phase, policy=off))) == 1


def test_the_last_error_is_shown_on_one_line_and_cut():
    state = state_of(Phase.ERROR, last_error="a\x1b[31m\nb" + "x" * 400, failures=1)
    lines = dict(phases.status_lines(view_of(Phase.ERROR, state=state), UTC))
    assert lines["last error"].startswith("a [31m bxxx")
    assert len(lines["last error"]) == 300


def test_the_status_lines_in_audio_with_everything_set():
    state = state_of(Phase.AUDIO, last_error="odd [/red] reply", failures=1, retry_after=NOON)
    request = Request(1, RequestKind.RELEASE, Phase.AUDIO, NOON - timedelta(seconds=5), "ann (command line)")
    view = view_of(Phase.AUDIO, state=state, gpu=(1200, 2), post=(4, 0), request=request)
    assert phases.status_lines(view, UTC) == [
        ("phase", "audio - Voxint has the GPU; recordings are worked on"),
        ("since", "2026-11-30 11:55:00 UTC (5 min ago)"),
        ("last tick", "2026-11-30 11:59:50 UTC (10 s ago)"),
        ("lease expires", "2026-11-30 12:09:00 UTC (in 9 min)"),
        ("last error", "odd [/red] reply"),
        ("failures", "1"),
        ("next try", "-"),
        ("request", "release, made 2026-11-30 11:59:55 UTC (5 s ago) by ann (command line)"),
        ("gpu lane", "open; 1,200 waiting, 2 running"),
        ("post lane", "closed; 4 waiting, 0 running"),
    ]


def test_the_json_never_holds_the_lease_id():
    assert "b7c1" not in str(document(view_of(Phase.AUDIO)))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (-5, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (75, "1 min 15 s"),
        (3600, "1 h"),
        (3660, "1 h 1 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_spans_are_read_in_two_units_at_most(seconds, text):
    assert figures.span(timedelta(seconds=seconds)) == text


def test_without_a_dwell_nothing_is_held_off_and_the_gpu_comes_back_at_once():
    view = view_of(Phase.LLM, policy=Policy(min_dwell=timedelta(0)))
    assert requests.next_step(RequestKind.RELEASE, view, UTC, woken=True) == [
        (
            "The language model has the GPU already. GPU_PHASE_MIN_DWELL_SECONDS is 0: the next switch to audio is not held"
            " off."
        )
    ]
    said = requests.next_step(RequestKind.AUDIO_NOW, view, UTC, woken=True)
    assert said[-1] == (
        "No recording is queued: the GPU comes back at once with nothing done, unless that changes meanwhile."
    )


NOT_ASKED = (
    "could not ask the broker who holds the GPU: cannot reach the broker at http://127.0.0.1:9: connection refused"
)
NOT_INSPECTED = "could not inspect whisper (cannot reach Docker at /run/docker.sock: permission denied)"
SILENT = "the language model does not answer: llm connection refused"
NO_SWITCH = "o switch to audio begins until this is mended: "


@pytest.mark.parametrize("reason", [NOT_ASKED, NOT_INSPECTED, NAMES_NO_LEASE])
@pytest.mark.parametrize("waiting", [0, 1, 3])
@pytest.mark.parametrize("post_open", [True, False])
def test_what_could_not_be_asked_is_said_everywhere_also_while_the_post_lane_is_open(reason, waiting, post_open):
    note = reason if post_open else f"{reason}; {SILENT}"
    state = answered(note=note) if post_open else state_of(Phase.LLM, note=note)
    view = view_of(Phase.LLM, state=state, gpu=(waiting, 0), post=(2, 0))
    assert view.post_lane.open is post_open
    assert phases.sharing_line(view, UTC) == ("warn", f"llm: the language model has the GPU. N{NO_SWITCH}{reason}")
    lines = dict(phases.status_lines(view, UTC))
    assert lines["gpu lane"] == f"closed; {waiting} waiting, 0 running (n{NO_SWITCH}{reason})"
    assert lines["post lane"] == ("open" if post_open else "closed") + "; 2 waiting, 0 running" + (
        "" if post_open else f" ({SILENT})"
    )
    assert lines["next try"] == "once what could not be asked answers"
    banner = notices.notices(view, UTC)[0]
    assert (banner.level, banner.code, banner.text) == (notices.Level.WARN, "blind", f"N{NO_SWITCH}{reason}.")
    said = requests.next_step(RequestKind.AUDIO_NOW, view, UTC, woken=True)
    assert f"But n{NO_SWITCH}{reason}." in said


def test_while_the_gpu_is_asked_for_what_could_not_be_inspected_is_said():
    view = view_of(Phase.ACQUIRING, state=state_of(Phase.ACQUIRING, note=NOT_INSPECTED))
    severity, text = phases.sharing_line(view, UTC)
    assert severity == "warn"
    assert text.endswith(f". The broker is not asked for the GPU until this is mended: {NOT_INSPECTED}")


@pytest.mark.parametrize("note", [None, SILENT, "the broker says that other holds the GPU", f"x {NOT_ASKED}"])
def test_where_all_is_known_nothing_of_it_is_said(note):
    view = view_of(Phase.LLM, state=answered(note=note), gpu=(3, 0))
    assert view.blind is None
    assert phases.sharing_line(view, UTC)[0] == "ok"
    assert "blind" not in {notice.code for notice in notices.notices(view, UTC)}
    for phase in set(Phase) - {Phase.LLM, Phase.ACQUIRING}:
        assert view_of(phase, state=state_of(phase, note=NOT_INSPECTED)).blind is None


def test_a_failed_switch_and_what_could_not_be_asked_are_both_said():
    state = answered(note=NOT_ASKED, failures=2, last_error="no answer", retry_after=NOON + timedelta(minutes=1))
    view = view_of(Phase.LLM, state=state, gpu=(1, 0))
    failed = "The last switch failed (2 failures in a row): no answer"
    assert phases.sharing_line(view, UTC) == (
        "warn",
        f"llm: the language model has the GPU. N{NO_SWITCH}{NOT_ASKED}. {failed}",
    )
    assert "Next try" not in told(view)[1]


def test_a_phase_that_waits_says_for_what_beside_the_gpu_lane():
    state = state_of(Phase.STARTING_SERVICES, note="waiting for whisper (connection refused)")
    lines = dict(phases.status_lines(view_of(Phase.STARTING_SERVICES, state=state), UTC))
    assert lines["gpu lane"] == "closed; 0 waiting, 0 running (waiting for whisper (connection refused))"


@pytest.mark.parametrize("dwell", [0, 60, 300])
def test_a_next_try_that_no_time_binds_names_what_it_waits_for(dwell):
    policy = Policy(min_dwell=timedelta(seconds=dwell))
    over = ": the end of min dwell has passed"

    def shown(**values):
        return dict(phases.status_lines(view_of(Phase.LLM, policy=policy, state=answered(), **values), UTC))["next try"]

    assert shown() == f"as soon as a recording waits{over}"
    assert shown(gpu=(1, 0)) == f"at the next tick{over}"
    assert shown(gpu=(1, 0), paused_at=NOON) == f"when the queue goes on{over}"
    assert shown(paused_at=NOON) == f"as soon as a recording waits{over}"
    request = Request(1, RequestKind.AUDIO_NOW, Phase.LLM, NOON, "ann")
    assert shown(request=request) == f"at the next tick{over}"
    assert shown(hold_until=NOON + timedelta(hours=1), hold_by="ann").endswith("(in 1 h): the hold of ann")


def test_the_next_hand_back_names_its_moment_and_then_the_next_tick():
    wait = state_of(Phase.ERROR, failures=1, retry_after=NOON + timedelta(seconds=30))
    assert dict(phases.status_lines(view_of(Phase.ERROR, state=wait), UTC))["next try"] == (
        "2026-11-30 12:00:30 UTC (in 30 s): the wait after a failure"
    )
    due = state_of(Phase.ERROR, failures=1, retry_after=NOON)
    assert dict(phases.status_lines(view_of(Phase.ERROR, state=due), UTC))["next try"] == (
        "at the next tick: the wait after a failure has passed"
    )


def test_a_refused_request_says_what_is_left_of_the_time_when_sharing_was_on():
    off = Policy(enabled=False)
    clean = "GPU sharing is off (GPU_PHASE_ENABLED=false): nothing was changed"
    assert requests.off_words(view_of(None, policy=off)) == clean
    assert requests.off_words(view_of(Phase.LLM, policy=off)) == clean
    left = requests.off_words(view_of(Phase.AUDIO, policy=off)).splitlines()
    assert left == [clean, phases.leftover(view_of(Phase.AUDIO, policy=off))]
    assert "the stored phase is audio and a lease is recorded" in left[1]


HUNG = "could not ask the broker who holds the GPU: cannot reach the broker at http://b/status: no complete answer within 10 s (timed out)"
RESTART = (
    "the broker hangs: restart it (`systemctl restart voxint-broker` on its host; where `voxint standalone` runs it,"
    " stop that and start it again); its log says what it did last (`journalctl -u voxint-broker`; standalone:"
    " logs/broker.log in its data folder)"
)


def test_a_broker_that_hangs_is_to_be_restarted_status_doctor_and_banner_say():
    view = view_of(Phase.LLM, gpu=(1, 0), state=answered(note=HUNG))
    said = f"until this is mended: {HUNG}; {RESTART}"
    assert said in dict(phases.status_lines(view, UTC))["gpu lane"]
    assert phases.sharing_line(view, UTC) == (
        "warn",
        f"llm: the language model has the GPU. No switch to audio begins {said}",
    )
    assert any(said in notice.text for notice in notices.notices(view, UTC))


def test_a_hand_back_that_ended_at_a_broker_that_hangs_says_so_too():
    state = state_of(Phase.ERROR, last_error="could not release the GPU: no complete answer within 10 s (timed out)")
    assert f"(timed out); {RESTART}. It is tried again" in phases.error_words(view_of(Phase.ERROR, state=state), UTC)


def test_a_broker_that_hangs_while_voxint_has_the_gpu_is_to_be_restarted_too():
    note = "could not renew the lease: cannot reach the broker at http://b/acquire: no complete answer within 10 s (timed out)"
    view = view_of(Phase.AUDIO, state=state_of(Phase.AUDIO, lease_id="b7c1", note=note))
    assert f"({note}; {RESTART})" in dict(phases.status_lines(view, UTC))["gpu lane"]
    assert phases.sharing_line(view, UTC)[1].endswith(f". {note}; {RESTART}")


def test_a_broker_that_is_not_there_is_not_said_to_hang():
    view = view_of(Phase.LLM, gpu=(1, 0), state=answered(note=NOT_ASKED))
    assert "restart it" not in dict(phases.status_lines(view, UTC))["gpu lane"]
