"""Edges out of `acquiring` and `starting_services`: every answer of the broker, and each limit to the microsecond."""

from __future__ import annotations

from dataclasses import replace

import pytest
from phase_rows import (
    HEALTHY,
    JUST,
    NOON,
    RENEWED,
    STOPPED,
    UNKNOWN,
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
    seconds,
    seen,
    services,
    state,
)

from voxint.gpu_phase.model import HOLDER, Cause, Cut, Phase, RequestOutcome
from voxint.gpu_phase.outcomes import Failed, Granted, Lost, Pending, Refused

ACQUIRING, STARTING, STOPPING = Phase.ACQUIRING, Phase.STARTING_SERVICES, Phase.STOPPING_SERVICES
LIMIT, START_LIMIT = 60, 70  # those of the tests' policy
MET, ACTED = RequestOutcome.MET, RequestOutcome.ACTED
RUNS = services(S, R, S)
FOUND = "pyannote runs without a turn of ours: stopping"
BLIND = "could not inspect pyannote (no answer)"
GRANT = Granted("b7c1", ahead(500))
LEASE = {"lease_id": "b7c1", "lease_expires_at": ahead(500)}
NAMING_US = "the broker refused a new lease because voxint already holds one"


def acq(age=10, **fields):
    return state(ACQUIRING, age, **fields)


def asked(answer, **fields):
    return seen(services=STOPPED, acquire=answer, **fields)


ACQUIRING_ROWS = [
    Row("200: the lease is ours", acq(), asked(GRANT), STARTING, Cause.GRANTED, LEASE),
    Row("200 without an end", acq(), asked(Granted("b7c1", None)), STARTING, Cause.GRANTED, {"lease_id": "b7c1"}),
    Row("200 with a warning: it is shown", acq(), asked(Granted("b7c1", ahead(500), "cannot read expires_at")),
        STARTING, Cause.GRANTED, LEASE | {"note": "cannot read expires_at"}),
    Row("200 at the limit is a grant all the same", acq(LIMIT), asked(GRANT), STARTING, Cause.GRANTED, LEASE),
    Row("a grant leaves an older failure count alone", acq(failures=2, retry_after=ahead(5)), asked(GRANT),
        STARTING, Cause.GRANTED, LEASE),
    Row("202: ask again", acq(), asked(Pending()), ACQUIRING, Cause.WAITING),
    Row("202 grows no backoff", acq(failures=2, retry_after=ahead(5)), asked(Pending()), ACQUIRING, Cause.WAITING),
    Row("202 just before the limit", acq(LIMIT - 1e-6), asked(Pending()), ACQUIRING, Cause.WAITING),
    Row("202 at the limit", acq(LIMIT), asked(Pending()), Phase.RELEASING, Cause.ACQUIRE_LIMIT,
        failed("the broker did not free the GPU within 60 s")),
    Row("409 for somebody else", acq(), asked(Refused("other")), Phase.LLM, Cause.REFUSED,
        failed("the broker refused the GPU: other holds it")),
    Row("409 that names nobody", acq(), asked(Refused()), Phase.LLM, Cause.REFUSED, failed("the broker refused the GPU")),
    Row("409 at the limit is still a refusal", acq(LIMIT), asked(Refused()), Phase.LLM, Cause.REFUSED,
        failed("the broker refused the GPU")),
    Row("409 that asks for less than the backoff", acq(), asked(Refused("other", seconds(29))), Phase.LLM, Cause.REFUSED,
        failed("the broker refused the GPU: other holds it; it asks to wait 29 s", wait=30)),
    Row("409 that asks for more than the backoff", acq(), asked(Refused("other", seconds(3600))), Phase.LLM,
        Cause.REFUSED, failed("the broker refused the GPU: other holds it; it asks to wait 3600 s", wait=3600)),
    Row("409 after earlier failures: the backoff doubles", acq(failures=2), asked(Refused(None, seconds(31))), Phase.LLM,
        Cause.REFUSED, failed("the broker refused the GPU; it asks to wait 31 s", failures=3, wait=120)),
    Row("409 with a warning: it is shown", acq(), asked(Refused("other", None, "retry_after_seconds is -5")), Phase.LLM,
        Cause.REFUSED, failed("the broker refused the GPU: other holds it") | {"note": "retry_after_seconds is -5"}),
    Row("409 that names voxint: the broker is asked who holds it", acq(), asked(Refused(HOLDER, seconds(3600))),
        Phase.RELEASING, Cause.ACQUIRE_FAILED, failed(NAMING_US)),
    Row("no answer, or any other: it may have granted", acq(), asked(Failed("timed out")), Phase.RELEASING,
        Cause.ACQUIRE_FAILED, failed("could not acquire the GPU: timed out")),
    Row("a reason is cleaned and cut", acq(), asked(Failed("a\x00b\n" + "x" * 400)), Phase.RELEASING,
        Cause.ACQUIRE_FAILED, failed("could not acquire the GPU: a b " + "x" * 269)),
    Row("a service runs: nothing is asked of the broker", acq(), seen(services=RUNS), STOPPING, Cause.SERVICE_RUNS,
        {"note": FOUND}),
    Row("found in acquiring: an existing failure count is kept", acq(failures=2), seen(services=RUNS), STOPPING,
        Cause.SERVICE_RUNS, {"note": FOUND, "cycle_failed": True}),
    Row("unknown services: the broker is not asked", acq(), seen(services=UNKNOWN), ACQUIRING, Cause.UNKNOWN,
        {"note": BLIND}),
    Row("unknown services just before the limit", acq(LIMIT - 1e-6), seen(services=UNKNOWN), ACQUIRING, Cause.UNKNOWN,
        {"note": BLIND}),
    Row("unknown services at the limit", acq(LIMIT), seen(services=UNKNOWN), Phase.RELEASING, Cause.ACQUIRE_LIMIT,
        failed(f"could not acquire the GPU within 60 s: {BLIND}")),
    Row("nothing was asked and nobody says why, at the limit", acq(LIMIT), seen(), Phase.RELEASING, Cause.ACQUIRE_LIMIT,
        failed("could not acquire the GPU within 60 s: the broker was not asked")),
    Row("release: no call, straight to releasing, no failure", acq(), seen(request=release(ACQUIRING)), Phase.RELEASING,
        Cause.RELEASE_ASKED, request=ACTED),
    Row("release at the limit is still no failure", acq(LIMIT), seen(request=release(Phase.DRAINING_POST)),
        Phase.RELEASING, Cause.RELEASE_ASKED, request=ACTED),
    Row("audio-now is met by a grant", acq(), asked(GRANT, request=audio_now(ACQUIRING)), STARTING, Cause.GRANTED, LEASE,
        MET),
    Row("audio-now is met while the broker is at work", acq(), asked(Pending(), request=audio_now(ACQUIRING)),
        ACQUIRING, Cause.WAITING, request=MET),
    Row("audio-now is kept where the broker refuses", acq(), asked(Refused(), request=audio_now(ACQUIRING)), Phase.LLM,
        Cause.REFUSED, failed("the broker refused the GPU")),
]  # fmt: skip


def starting(age=10, **fields):
    return leased(STARTING, age, **fields)


def renewed(found, **fields):
    return seen(services=found, renewal=RENEWED, **fields)


DOWN = services(R, R, R, detail="503")
NOT_READY = "waiting for whisper (503), pyannote (503), titanet (503)"
ONE_LATE = (*HEALTHY[:2], replace(HEALTHY[2], healthy=False, detail=""))
RENEW_FAILED = "could not renew the lease: timed out"
ON_CPU = "pyannote runs on cpu, expected cuda (1 restart tried)"
MISPLACED = (HEALTHY[0], replace(HEALTHY[1], placement=ON_CPU), HEALTHY[2])
BARRED = (HEALTHY[0], replace(HEALTHY[1], placement=ON_CPU, barred=True), HEALTHY[2])
BARRED_AND_LATE = (replace(HEALTHY[0], healthy=False), *BARRED[1:])

STARTING_ROWS = [
    Row("on the wrong device, and only a warning is wanted", starting(), renewed(MISPLACED), Phase.AUDIO,
        Cause.SERVICES_HEALTHY, LEASE | {"note": ON_CPU}),
    Row("on a device that is not allowed: a failed start", starting(), renewed(BARRED), STOPPING, Cause.WRONG_DEVICE,
        LEASE | failed(ON_CPU)),
    Row("on a device that is not allowed, and nothing more is known", starting(),
        renewed((*HEALTHY[:2], replace(HEALTHY[2], barred=True))), STOPPING, Cause.WRONG_DEVICE,
        LEASE | failed("titanet came up on a device that audio may not begin with")),
    Row("on a device that is not allowed: at once", starting(), renewed(BARRED_AND_LATE), STOPPING, Cause.WRONG_DEVICE,
        LEASE | failed(ON_CPU)),
    Row("on a device that is not allowed, at the start limit", starting(START_LIMIT), renewed(BARRED_AND_LATE),
        STOPPING, Cause.WRONG_DEVICE, LEASE | failed(ON_CPU)),
    Row("a lost lease comes before the device", starting(), seen(services=BARRED, renewal=Lost("gone")), STOPPING,
        Cause.LEASE_LOST, {"lease_lost": True} | failed("the lease was lost: gone"), cut=Cut()),
    Row("a release comes before the device", starting(), renewed(BARRED, request=release(STARTING)), STOPPING,
        Cause.RELEASE_ASKED, LEASE, ACTED),
    Row("all are healthy", starting(), renewed(HEALTHY), Phase.AUDIO, Cause.SERVICES_HEALTHY, LEASE),
    Row("all are healthy at the limit", starting(START_LIMIT), renewed(HEALTHY), Phase.AUDIO, Cause.SERVICES_HEALTHY,
        LEASE),
    Row("none is ready", starting(), renewed(DOWN), STARTING, Cause.WAITING, LEASE | {"note": NOT_READY}),
    Row("one is not ready", starting(), renewed(ONE_LATE), STARTING, Cause.WAITING,
        LEASE | {"note": "waiting for titanet"}),
    Row("unknown goes on to the limit", starting(), renewed(services(U, R, R)), STARTING, Cause.WAITING,
        LEASE | {"note": "waiting for whisper, pyannote, titanet"}),
    Row("just before the start limit", starting(START_LIMIT - 1e-6), renewed(DOWN), STARTING, Cause.WAITING,
        LEASE | {"note": NOT_READY}),
    Row("at the start limit", starting(START_LIMIT), renewed(ONE_LATE), STOPPING, Cause.START_LIMIT,
        LEASE | failed("not ready within 70 s: titanet")),
    Row("the words of a start that failed are kept", starting(START_LIMIT), renewed(services(S, detail="no such image")),
        STOPPING, Cause.START_LIMIT, LEASE | failed("not ready within 70 s: whisper (no such image)")),
    Row("a renewal without an answer: nothing is started or entered", starting(), seen(renewal=Failed("timed out")),
        STARTING, Cause.WAITING, {"last_error": RENEW_FAILED, "note": RENEW_FAILED}),
    Row("a renewal without an answer, at the start limit", starting(START_LIMIT), seen(renewal=Failed("timed out")),
        STOPPING, Cause.START_LIMIT, failed("not ready within 70 s: the model services")),
    Row("a renewal answered 404 or 409", starting(), seen(renewal=Lost("no such lease")), STOPPING, Cause.LEASE_LOST,
        {"lease_lost": True} | failed("the lease was lost: no such lease"), cut=Cut()),
    Row("a lost lease comes before the start limit", starting(START_LIMIT), seen(renewal=Lost("no such lease")),
        STOPPING, Cause.LEASE_LOST, {"lease_lost": True} | failed("the lease was lost: no such lease"), cut=Cut()),
    Row("a lost lease comes before a release", starting(), seen(renewal=Lost("gone"), request=release(STARTING)),
        STOPPING, Cause.LEASE_LOST, {"lease_lost": True} | failed("the lease was lost: gone"), cut=Cut()),
    Row("the lease just before its end", starting(lease_expires_at=NOON + JUST), seen(renewal=Failed("timed out")),
        STARTING, Cause.WAITING, {"last_error": RENEW_FAILED, "note": RENEW_FAILED}),
    Row("the lease at its end", starting(lease_expires_at=NOON), seen(renewal=Failed("timed out")), STOPPING,
        Cause.LEASE_LOST, {"lease_lost": True} | failed(
            "the lease expired: it could not be renewed: timed out"), cut=Cut()),
    Row("a lease without an end is renewed for ever", starting(lease_expires_at=None), seen(renewal=Failed("timed out")),
        STARTING, Cause.WAITING, {"last_error": RENEW_FAILED, "note": RENEW_FAILED}),
    Row("a renewal whose end has passed", starting(), seen(renewal=Granted("b7c1", NOON)), STOPPING, Cause.LEASE_LOST,
        {"lease_expires_at": NOON, "lease_lost": True} | failed("the lease expired"), cut=Cut()),
    Row("a renewal with another id: the new one is kept", starting(), seen(
        services=HEALTHY, renewal=Granted("c9", None)), Phase.AUDIO, Cause.SERVICES_HEALTHY,
        {"lease_id": "c9", "lease_expires_at": None}),
    Row("release: no failure", starting(), seen(renewal=RENEWED, request=release(STARTING)), STOPPING,
        Cause.RELEASE_ASKED, LEASE, ACTED),
    Row("release at the start limit is still no failure", starting(START_LIMIT), seen(renewal=RENEWED,
        request=release(ACQUIRING)), STOPPING, Cause.RELEASE_ASKED, LEASE, ACTED),
    Row("release comes before all are healthy", starting(), renewed(HEALTHY, request=release(STARTING)), STOPPING,
        Cause.RELEASE_ASKED, LEASE, ACTED),
    Row("audio-now is met while services start", starting(), renewed(DOWN, request=audio_now(STARTING)), STARTING,
        Cause.WAITING, LEASE | {"note": NOT_READY}, MET),
    Row("audio-now is met on entering audio", starting(), renewed(HEALTHY, request=audio_now(ACQUIRING)), Phase.AUDIO,
        Cause.SERVICES_HEALTHY, LEASE, MET),
    Row("audio-now is kept where the start fails", starting(START_LIMIT), renewed(ONE_LATE, request=audio_now(STARTING)),
        STOPPING, Cause.START_LIMIT, LEASE | failed("not ready within 70 s: titanet")),
]  # fmt: skip
ROWS = ACQUIRING_ROWS + STARTING_ROWS


@pytest.mark.parametrize("row", ROWS, ids=ids(ROWS))
def test_edges_of_acquiring_and_starting_services(row):
    row.check()


def test_with_no_service_to_wait_for_audio_is_entered():
    Row("", starting(), renewed(()), Phase.AUDIO, Cause.SERVICES_HEALTHY, LEASE).check()
