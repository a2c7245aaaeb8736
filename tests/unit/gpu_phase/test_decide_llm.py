"""Edges out of `llm` and `draining_post`: when a switch may begin, and what comes first."""

from __future__ import annotations

import pytest
from phase_rows import (
    JUST,
    NOON,
    NOT_READY,
    POLICY,
    READY,
    STOPPED,
    UNKNOWN,
    R,
    Row,
    S,
    ago,
    ahead,
    audio_now,
    ids,
    release,
    seen,
    services,
    state,
)

from voxint.gpu_phase.model import HOLDER, Cause, Lane, Phase, RequestOutcome, WorkSeen
from voxint.gpu_phase.outcomes import Failed, Free, Held

LLM, DRAINING_POST, STOPPING = Phase.LLM, Phase.DRAINING_POST, Phase.STOPPING_SERVICES
QUEUED = WorkSeen(gpu_queued=True)
DWELT = 100  # min dwell of the tests' policy
WELL = {"services": STOPPED, "llm": READY, "status": Free()}
PROBED = {"llm_ready": True, "llm_checked_at": NOON}
ASKED = {"llm_ready": False, "llm_checked_at": NOON}
RUNS = services(S, R, S)
FOUND = "pyannote runs without a turn of ours: stopping"
OURS = Held(HOLDER, "old1", ahead(40))
LEASE_FOUND = "the broker still holds a lease of voxint: giving it back"
NOT_READY_NOTE = "the language model does not answer: 503 from http://llm: loading"
BLIND = "could not inspect pyannote (no answer)"
STATUS_BLIND = "could not ask the broker who holds the GPU: timed out"
NO_ID = "the broker says that voxint holds the GPU, but names no lease"
MET, ACTED = RequestOutcome.MET, RequestOutcome.ACTED


def llm(age=DWELT, **fields):
    return state(LLM, age, **fields)


def well(**fields):
    return seen(**(WELL | fields))


ROWS = [
    Row("idle: the lane is open when all answer", llm(), well(), LLM, Cause.IDLE, PROBED),
    Row("readiness is lost when one does not answer", llm(llm_ready=True, llm_checked_at=ago(10)),
        well(llm=NOT_READY), LLM, Cause.IDLE, ASKED | {"note": NOT_READY_NOTE}),
    Row("a probe that was not made is no answer", llm(llm_ready=True), well(llm=None), LLM, Cause.IDLE, ASKED),
    Row("work waits, all is well: a switch begins", llm(), well(work=QUEUED), DRAINING_POST, Cause.WORK_WAITS),
    Row("the language model need not be ready for a switch", llm(), well(work=QUEUED, llm=NOT_READY),
        DRAINING_POST, Cause.WORK_WAITS),
    Row("just before min dwell", llm(DWELT - 1e-6),
        well(work=QUEUED), LLM, Cause.HELD_OFF, PROBED),
    Row("just before retry_after", llm(retry_after=NOON + JUST), well(work=QUEUED), LLM, Cause.HELD_OFF, PROBED),
    Row("exactly at retry_after", llm(retry_after=NOON), well(work=QUEUED), DRAINING_POST, Cause.WORK_WAITS),
    Row("just before the end of a hold", llm(), well(work=QUEUED, hold_until=NOON + JUST), LLM, Cause.HELD_OFF, PROBED),
    Row("exactly at the end of a hold", llm(), well(work=QUEUED, hold_until=NOON), DRAINING_POST, Cause.WORK_WAITS),
    Row("only the GPU lane's queue calls for a switch", llm(), well(work=WorkSeen(post_in_progress=True)),
        LLM, Cause.IDLE, PROBED),
    Row("what is begun but not queued calls for none", llm(), well(work=WorkSeen(gpu_in_progress=True)),
        LLM, Cause.IDLE, PROBED),
    Row("the last error stays until a switch begins", llm(last_error="old", failures=2, cycle_failed=True),
        well(), LLM, Cause.IDLE, PROBED),
    Row("a switch forgets the last error, not the count", llm(last_error="old", failures=2, cycle_failed=True),
        well(work=QUEUED), DRAINING_POST, Cause.WORK_WAITS, {"last_error": None, "cycle_failed": False}),
    # somebody else, or nobody who can say
    Row("a service runs: it is stopped first, and it is no failure", llm(),
        well(work=QUEUED, services=RUNS), STOPPING, Cause.SERVICE_RUNS, {"note": FOUND}),
    Row("adopting keeps a count of one too", llm(failures=1), well(services=RUNS), STOPPING, Cause.SERVICE_RUNS,
        {"cycle_failed": True, "note": FOUND}),
    Row("a switch closes the post lane", llm(llm_ready=True, llm_checked_at=ago(10)), well(work=QUEUED), DRAINING_POST,
        Cause.WORK_WAITS),
    Row("two services run", llm(), well(services=services(R, S, R)), STOPPING, Cause.SERVICE_RUNS,
        {"note": "whisper, titanet run without a turn of ours: stopping"}),
    Row("a lease of ours is adopted", llm(), well(work=QUEUED, status=OURS), STOPPING, Cause.LEASE_FOUND,
        {"lease_id": "old1", "lease_expires_at": ahead(40), "note": LEASE_FOUND}),
    Row("a lease without an end is adopted too", llm(), well(status=Held(HOLDER, "old1")), STOPPING, Cause.LEASE_FOUND,
        {"lease_id": "old1", "note": LEASE_FOUND}),
    Row("a service and a lease at once", llm(), well(services=RUNS, status=OURS), STOPPING, Cause.SERVICE_RUNS,
        {"lease_id": "old1", "lease_expires_at": ahead(40), "note": f"{FOUND}; {LEASE_FOUND}"}),
    Row("adopting keeps an existing failure count", llm(failures=3, retry_after=ahead(9)), well(services=RUNS),
        STOPPING, Cause.SERVICE_RUNS, {"cycle_failed": True, "note": FOUND}),
    Row("adopting does not invent a failed cycle", llm(failures=0, cycle_failed=True), well(services=RUNS),
        STOPPING, Cause.SERVICE_RUNS, {"cycle_failed": False, "note": FOUND}),
    Row("a service comes before every request", llm(), well(services=RUNS, request=audio_now(LLM)),
        STOPPING, Cause.SERVICE_RUNS, {"note": FOUND}),
    Row("a lease comes before every request", llm(), well(status=OURS, request=release(LLM)), STOPPING,
        Cause.LEASE_FOUND, {"lease_id": "old1", "lease_expires_at": ahead(40), "note": LEASE_FOUND}),
    Row("a lease of somebody else is shown, never touched", llm(), well(status=Held("other", "zz9", ahead(9))),
        LLM, Cause.IDLE, PROBED | {"note": "the broker says that other holds the GPU"}),
    Row("a lease of nobody named is shown", llm(), well(status=Held(None, "zz9")),
        LLM, Cause.IDLE, PROBED | {"note": "the broker says that somebody unnamed holds the GPU"}),
    Row("somebody else's lease does not keep a switch from being tried", llm(),
        well(work=QUEUED, status=Held("other", "zz9")), DRAINING_POST, Cause.WORK_WAITS),
    Row("a lease of ours without an id is shown and never adopted", llm(),
        well(work=QUEUED, status=Held(HOLDER, None)), LLM, Cause.UNKNOWN, PROBED | {"note": NO_ID}),
    Row("unknown services: no switch, no failure, readiness goes on", llm(), well(work=QUEUED, services=UNKNOWN),
        LLM, Cause.UNKNOWN, PROBED | {"note": BLIND}),
    Row("unknown services are the cause also when nothing waits", llm(), well(services=UNKNOWN),
        LLM, Cause.UNKNOWN, PROBED | {"note": BLIND}),
    Row("unknown status: no switch, no failure", llm(), well(work=QUEUED, status=Failed("timed out")),
        LLM, Cause.UNKNOWN, PROBED | {"note": STATUS_BLIND}),
    Row("unknown and not ready are both said", llm(), well(services=UNKNOWN, llm=NOT_READY),
        LLM, Cause.UNKNOWN, ASKED | {"note": f"{BLIND}; {NOT_READY_NOTE}"}),
    Row("one unknown, another runs: what runs is stopped", llm(), well(services=(*UNKNOWN, RUNS[1])),
        STOPPING, Cause.SERVICE_RUNS, {"note": FOUND}),
    # audio-now
    Row("audio-now skips dwell, backoff and hold", llm(1, retry_after=ahead(99)),
        well(request=audio_now(LLM), hold_until=ahead(99)), DRAINING_POST, Cause.AUDIO_NOW, request=ACTED),
    Row("audio-now needs no queue", llm(), well(request=audio_now(None)), DRAINING_POST, Cause.AUDIO_NOW, request=ACTED),
    Row("audio-now made on the way back is acted on in llm", llm(), well(request=audio_now(Phase.RELEASING)),
        DRAINING_POST, Cause.AUDIO_NOW, request=ACTED),
    Row("audio-now does not begin a switch blindly", llm(), well(request=audio_now(LLM), services=UNKNOWN),
        LLM, Cause.UNKNOWN, PROBED | {"note": BLIND}),
    Row("audio-now waits for a status", llm(), well(request=audio_now(LLM), status=Failed("timed out")),
        LLM, Cause.UNKNOWN, PROBED | {"note": STATUS_BLIND}),
    # release
    Row("release holds off the next switch for min dwell", llm(), well(work=QUEUED, request=release(LLM)),
        LLM, Cause.HELD_OFF, PROBED | {"retry_after": ahead(DWELT)}, ACTED),
    Row("release never shortens a longer backoff", llm(retry_after=ahead(DWELT + 1)), well(request=release(LLM)),
        LLM, Cause.HELD_OFF, PROBED, ACTED),
    Row("release lengthens a shorter backoff", llm(retry_after=ahead(DWELT - 1)), well(request=release(LLM)),
        LLM, Cause.HELD_OFF, PROBED | {"retry_after": ahead(DWELT)}, ACTED),
    Row("release made without a row holds off as well", llm(), well(request=release(None)),
        LLM, Cause.HELD_OFF, PROBED | {"retry_after": ahead(DWELT)}, ACTED),
    Row("release made in draining_post holds off as well", llm(), well(request=release(DRAINING_POST)),
        LLM, Cause.HELD_OFF, PROBED | {"retry_after": ahead(DWELT)}, ACTED),
    Row("release is heard also where a switch could not begin", llm(), well(services=UNKNOWN, request=release(LLM)),
        LLM, Cause.HELD_OFF, PROBED | {"retry_after": ahead(DWELT), "note": BLIND}, ACTED),
    *(
        Row(f"release made in {made_in} is met in llm, with no hold-off", llm(), well(request=release(made_in)),
            LLM, Cause.IDLE, PROBED, MET)
        for made_in in Phase if made_in not in {LLM, DRAINING_POST}
    ),
    # draining_post
    Row("post lane at work: it is waited for", state(DRAINING_POST), seen(services=STOPPED,
        work=WorkSeen(post_in_progress=True)), DRAINING_POST, Cause.WORKING),
    Row("no tick but one in llm leaves an answer standing", state(DRAINING_POST, llm_ready=True), seen(services=STOPPED,
        work=WorkSeen(post_in_progress=True)), DRAINING_POST, Cause.WORKING),
    Row("zero: the broker is asked next; the save looks again", state(DRAINING_POST), seen(services=STOPPED),
        Phase.ACQUIRING, Cause.POST_DRAINED, drained=Lane.POST),
    Row("the GPU lane's work is not waited for", state(DRAINING_POST), seen(services=STOPPED,
        work=WorkSeen(gpu_queued=True, gpu_in_progress=True)), Phase.ACQUIRING, Cause.POST_DRAINED, drained=Lane.POST),
    Row("unknown services do not keep the drain from ending", state(DRAINING_POST), seen(services=UNKNOWN),
        Phase.ACQUIRING, Cause.POST_DRAINED, drained=Lane.POST),
    Row("a service runs while the post lane drains", state(DRAINING_POST), seen(services=RUNS),
        STOPPING, Cause.SERVICE_RUNS, {"note": FOUND}),
    Row("found in draining_post: an existing failure count is kept", state(DRAINING_POST, failures=2),
        seen(services=RUNS), STOPPING, Cause.SERVICE_RUNS, {"cycle_failed": True, "note": FOUND}),
    Row("a service comes before a release", state(DRAINING_POST), seen(services=RUNS, request=release(DRAINING_POST)),
        STOPPING, Cause.SERVICE_RUNS, {"note": FOUND}),
    Row("release turns back, with the hold-off of llm", state(DRAINING_POST),
        seen(services=STOPPED, request=release(DRAINING_POST)), LLM, Cause.RELEASE_ASKED,
        {"retry_after": ahead(DWELT)}, ACTED),
    Row("release turns back before zero is looked at", state(DRAINING_POST, retry_after=ahead(500)),
        seen(services=STOPPED, work=WorkSeen(post_in_progress=True), request=release(LLM)), LLM, Cause.RELEASE_ASKED,
        {}, ACTED),
    Row("audio-now is met where the way goes on", state(DRAINING_POST), seen(services=STOPPED,
        request=audio_now(DRAINING_POST)), Phase.ACQUIRING, Cause.POST_DRAINED, request=MET, drained=Lane.POST),
    Row("audio-now is met where the drain takes its time", state(DRAINING_POST), seen(services=STOPPED,
        work=WorkSeen(post_in_progress=True), request=audio_now(LLM)), DRAINING_POST, Cause.WORKING, request=MET),
    Row("audio-now is kept where the way ends early", state(DRAINING_POST), seen(services=RUNS,
        request=audio_now(DRAINING_POST)), STOPPING, Cause.SERVICE_RUNS, {"note": FOUND}),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=ids(ROWS))
def test_edges_of_llm_and_draining_post(row):
    row.check()


def test_the_tables_policy_has_the_dwell_that_the_rows_name():
    assert POLICY.min_dwell.total_seconds() == DWELT
