"""Edges out of `audio` and `draining`: when the GPU goes back, and what becomes of the work in progress."""

from __future__ import annotations

from dataclasses import replace

import pytest
from phase_rows import (
    HEALTHY,
    HOURS_OVER,
    JUST,
    NOON,
    RENEWED,
    RUNNING,
    R,
    Row,
    S,
    U,
    ahead,
    audio_now,
    failed,
    ids,
    leased,
    release,
    seen,
    services,
)

from voxint.gpu_phase.model import Cause, Cut, Lane, Phase, RequestOutcome, WorkSeen
from voxint.gpu_phase.outcomes import Failed, Granted, Lost

AUDIO, DRAINING, STOPPING = Phase.AUDIO, Phase.DRAINING, Phase.STOPPING_SERVICES
DWELT, MAX = 100, 1000  # those of the tests' policy
MET, ACTED = RequestOutcome.MET, RequestOutcome.ACTED
LEASE = {"lease_expires_at": ahead(500)}
QUEUED, AT_WORK = WorkSeen(gpu_queued=True), WorkSeen(gpu_in_progress=True)
POST_ONLY = WorkSeen(post_in_progress=True)
LOST = Lost("unknown lease")
WAS_LOST = {"lease_lost": True} | failed("the lease was lost: unknown lease")
RENEW_FAILED = "could not renew the lease: 503"
GONE = services(R, S, S)
STOPPED_TWO = LEASE | failed("pyannote, titanet stopped while Voxint held the GPU")
BLAMED = Cut(frozenset({"pyannote", "titanet"}))


def audio(age=DWELT, **fields):
    return leased(AUDIO, age, **fields)


def draining(age=10, **fields):
    return leased(DRAINING, age, **fields)


def well(found=RUNNING, **fields):
    return seen(**({"services": found, "renewal": RENEWED} | fields))


def blind_renewal(**fields):
    return well(**({"renewal": Failed("503")} | fields))


MISPLACED = (RUNNING[0], replace(RUNNING[1], placement="pyannote runs on cpu, expected cuda"), RUNNING[2])

AUDIO_ROWS = [
    Row("on the wrong device in mid-window: said, and nothing else", audio(), well(MISPLACED, work=AT_WORK), AUDIO,
        Cause.WORKING, LEASE | {"note": "pyannote runs on cpu, expected cuda"}),
    Row("on the wrong device: the hand-back is as ever", audio(MAX), well(MISPLACED, work=AT_WORK), DRAINING,
        Cause.MAX_AUDIO, LEASE),
    Row("recordings wait", audio(), well(work=QUEUED), AUDIO, Cause.WORKING, LEASE),
    Row("recordings are at work", audio(), well(work=AT_WORK), AUDIO, Cause.WORKING, LEASE),
    Row("nothing to do just before min dwell: no early hand-back", audio(DWELT - 1e-6), well(), AUDIO, Cause.WORKING,
        LEASE),
    Row("nothing to do at min dwell", audio(), well(), DRAINING, Cause.QUEUE_EMPTY, LEASE),
    Row("the post lane's work is no reason to stay", audio(), well(work=POST_ONLY), DRAINING, Cause.QUEUE_EMPTY, LEASE),
    Row("just before max audio", audio(MAX - 1e-6), well(work=QUEUED), AUDIO, Cause.WORKING, LEASE),
    Row("at max audio, with recordings waiting", audio(MAX), well(work=QUEUED), DRAINING, Cause.MAX_AUDIO, LEASE),
    Row("at max audio, with recordings at work", audio(MAX), well(work=AT_WORK), DRAINING, Cause.MAX_AUDIO, LEASE),
    Row("max audio is named before the empty queue", audio(MAX), well(), DRAINING, Cause.MAX_AUDIO, LEASE),
    Row("at the end of the hours for audio", audio(1), well(work=QUEUED), DRAINING, Cause.WINDOW_CLOSED, LEASE,
        policy=HOURS_OVER),
    Row("max audio is named before the end of the hours", audio(MAX), well(work=QUEUED), DRAINING, Cause.MAX_AUDIO,
        LEASE, policy=HOURS_OVER),
    Row("the end of the hours is named before the empty queue", audio(), well(), DRAINING, Cause.WINDOW_CLOSED, LEASE,
        policy=HOURS_OVER),
    Row("release: the normal hand-back, before min dwell too", audio(1), well(work=QUEUED, request=release(AUDIO)),
        DRAINING, Cause.RELEASE_ASKED, LEASE, ACTED),
    Row("release is named before max audio", audio(MAX), well(request=release(AUDIO)), DRAINING, Cause.RELEASE_ASKED,
        LEASE, ACTED),
    Row("a renewal answered 404 or 409", audio(), well(work=AT_WORK, renewal=LOST), STOPPING, Cause.LEASE_LOST,
        WAS_LOST, cut=Cut()),
    Row("a lost lease comes before everything", audio(MAX), well(GONE, renewal=LOST, request=release(AUDIO)), STOPPING,
        Cause.LEASE_LOST, WAS_LOST, cut=Cut()),
    Row("a renewal without an answer: audio goes on", audio(), blind_renewal(work=QUEUED), AUDIO, Cause.WORKING,
        {"last_error": RENEW_FAILED, "note": RENEW_FAILED}),
    Row("a renewal without an answer hides no earlier failure", audio(cycle_failed=True, last_error="first"),
        blind_renewal(work=QUEUED), AUDIO, Cause.WORKING, {"note": RENEW_FAILED}),
    Row("the lease just before its end", audio(lease_expires_at=NOON + JUST), blind_renewal(work=QUEUED), AUDIO,
        Cause.WORKING, {"last_error": RENEW_FAILED, "note": RENEW_FAILED}),
    Row("the lease at its end, the broker silent", audio(lease_expires_at=NOON), blind_renewal(work=QUEUED), STOPPING,
        Cause.LEASE_LOST, {"lease_lost": True} | failed("the lease expired: it could not be renewed: 503"), cut=Cut()),
    Row("a lease without an end is renewed for ever", audio(lease_expires_at=None), blind_renewal(work=QUEUED), AUDIO,
        Cause.WORKING, {"last_error": RENEW_FAILED, "note": RENEW_FAILED}),
    Row("a lease at its end that the broker still renews", audio(lease_expires_at=NOON), well(work=QUEUED), AUDIO,
        Cause.WORKING, LEASE),
    Row("a renewal with another id: the new one is kept", audio(), well(work=QUEUED, renewal=Granted("c9", None)),
        AUDIO, Cause.WORKING, {"lease_id": "c9", "lease_expires_at": None}),
    Row("services that stopped are to blame, the others are not", audio(), well(GONE, work=AT_WORK), STOPPING,
        Cause.SERVICE_STOPPED, STOPPED_TWO, cut=BLAMED),
    Row("a stopped service comes before a release", audio(), well(GONE, request=release(AUDIO)), STOPPING,
        Cause.SERVICE_STOPPED, STOPPED_TWO, cut=BLAMED),
    Row("unknown services: audio stays", audio(), well(services(R, U, R, detail="no answer"), work=QUEUED), AUDIO,
        Cause.WORKING, LEASE | {"note": "could not inspect pyannote (no answer)"}),
    Row("a sick service that runs is not a stopped one", audio(), well(RUNNING, work=QUEUED), AUDIO, Cause.WORKING,
        LEASE),
    Row("a failure count of before stays until the whole way is done", audio(failures=2, retry_after=ahead(3)),
        well(work=QUEUED), AUDIO, Cause.WORKING, LEASE),
    Row("audio-now is met in audio", audio(), well(HEALTHY, work=QUEUED, request=audio_now(AUDIO)), AUDIO,
        Cause.WORKING, LEASE, MET),
    Row("audio-now is met at the ordinary end of audio", audio(MAX), well(request=audio_now(AUDIO)), DRAINING,
        Cause.MAX_AUDIO, LEASE, MET),
    Row("audio-now is met where the queue is empty", audio(), well(request=audio_now(AUDIO)), DRAINING,
        Cause.QUEUE_EMPTY, LEASE, MET),
    Row("audio-now is kept where audio ends by a failure", audio(), well(GONE, request=audio_now(AUDIO)), STOPPING,
        Cause.SERVICE_STOPPED, STOPPED_TWO, cut=BLAMED),
]  # fmt: skip

DRAINING_ROWS = [
    Row("work in progress is waited for", draining(), well(work=AT_WORK), DRAINING, Cause.WORKING, LEASE),
    Row("there is no limit to it", draining(10**6), well(work=AT_WORK), DRAINING, Cause.WORKING, LEASE),
    Row("zero: the services are stopped; the save looks again", draining(), well(), STOPPING, Cause.DRAINED, LEASE,
        drained=Lane.GPU),
    Row("what has not begun is not waited for", draining(), well(work=QUEUED), STOPPING, Cause.DRAINED, LEASE,
        drained=Lane.GPU),
    Row("the post lane's work is not waited for", draining(), well(work=POST_ONLY), STOPPING, Cause.DRAINED, LEASE,
        drained=Lane.GPU),
    Row("release made in draining: at once, without an attempt used", draining(),
        well(work=AT_WORK, request=release(DRAINING)), STOPPING, Cause.RELEASE_FORCED, LEASE, ACTED, Cut()),
    Row("release made in draining is named before zero", draining(), well(request=release(DRAINING)), STOPPING,
        Cause.RELEASE_FORCED, LEASE, ACTED, Cut()),
    Row("the release that ended audio does not force the drain", draining(), well(work=AT_WORK,
        request=release(AUDIO)), DRAINING, Cause.WORKING, LEASE, MET),
    Row("a release made in audio is met by zero", draining(), well(request=release(AUDIO)), STOPPING, Cause.DRAINED,
        LEASE, MET, drained=Lane.GPU),
    Row("a lost lease cuts what is at work", draining(), well(work=AT_WORK, renewal=LOST), STOPPING, Cause.LEASE_LOST,
        WAS_LOST, cut=Cut()),
    Row("a lost lease comes before a forced release", draining(), well(renewal=LOST, request=release(DRAINING)),
        STOPPING, Cause.LEASE_LOST, WAS_LOST, cut=Cut()),
    Row("the lease just before its end, the broker silent", draining(lease_expires_at=NOON + JUST),
        blind_renewal(work=AT_WORK), DRAINING, Cause.WORKING, {"last_error": RENEW_FAILED, "note": RENEW_FAILED}),
    Row("the lease at its end, the broker silent", draining(lease_expires_at=NOON), blind_renewal(work=AT_WORK),
        STOPPING, Cause.LEASE_LOST,
        {"lease_lost": True} | failed("the lease expired: it could not be renewed: 503"), cut=Cut()),
    Row("a stopped service", draining(), well(GONE, work=AT_WORK), STOPPING, Cause.SERVICE_STOPPED, STOPPED_TWO,
        cut=BLAMED),
    Row("a stopped service comes before a forced release", draining(), well(GONE, request=release(DRAINING)), STOPPING,
        Cause.SERVICE_STOPPED, STOPPED_TWO, cut=BLAMED),
    Row("unknown services: draining stays", draining(), well(services(U, R, R), work=AT_WORK), DRAINING, Cause.WORKING,
        LEASE | {"note": "could not inspect whisper"}),
    Row("audio-now is kept for llm", draining(), well(work=AT_WORK, request=audio_now(DRAINING)), DRAINING,
        Cause.WORKING, LEASE),
    Row("audio-now is kept for llm when the drain ends", draining(), well(request=audio_now(AUDIO)), STOPPING,
        Cause.DRAINED, LEASE, drained=Lane.GPU),
]  # fmt: skip

ROWS = AUDIO_ROWS + DRAINING_ROWS


@pytest.mark.parametrize("row", ROWS, ids=ids(ROWS))
def test_edges_of_audio_and_draining(row):
    row.check()
