"""Edges out of `stopping_services`, `releasing` and `error`: nothing is released blindly, and nothing is forgotten."""

from __future__ import annotations

import pytest
from phase_rows import (
    JUST,
    NOON,
    RENEWED,
    RUNNING,
    STOPPED,
    UNKNOWN,
    R,
    Row,
    S,
    U,
    ago,
    ahead,
    audio_now,
    failed,
    ids,
    leased,
    release,
    seen,
    services,
    state,
)

from voxint.gpu_phase.model import HOLDER, Cause, Phase, RequestOutcome
from voxint.gpu_phase.outcomes import Done, Failed, Free, Granted, Held, Lost, Pending

LLM, AUDIO, STOPPING, RELEASING, ERROR = Phase.LLM, Phase.AUDIO, Phase.STOPPING_SERVICES, Phase.RELEASING, Phase.ERROR
STOP_LIMIT, RELEASE_LIMIT = 80, 90  # those of the tests' policy
MET, ACTED = RequestOutcome.MET, RequestOutcome.ACTED
LEASE = {"lease_expires_at": ahead(500)}
ONE_LEFT = services(S, R, S, detail="stopping")
WAITING = "waiting for pyannote (stopping) to stop"
NOT_CONFIRMED = "could not confirm within 80 s that they stopped: pyannote (stopping)"
RENEW_FAILED = "could not renew the lease: 503"
FOUND = "pyannote runs without a turn of ours: stopping"
BLIND = "could not inspect pyannote (no answer)"
STATUS_FAILED = "could not ask the broker who holds the GPU: timed out"


def stopping(age=10, **fields):
    return leased(STOPPING, age, **fields)


def stop(found, **fields):
    return seen(**({"services": found, "renewal": RENEWED} | fields))


STOPPING_ROWS = [
    Row("all confirmed stopped", stopping(), stop(STOPPED), RELEASING, Cause.SERVICES_STOPPED, LEASE),
    Row("all confirmed stopped at the limit", stopping(STOP_LIMIT), stop(STOPPED), RELEASING, Cause.SERVICES_STOPPED,
        LEASE),
    Row("one takes its time", stopping(), stop(ONE_LEFT), STOPPING, Cause.WAITING, LEASE | {"note": WAITING}),
    Row("just before the limit", stopping(STOP_LIMIT - 1e-6), stop(ONE_LEFT), STOPPING, Cause.WAITING,
        LEASE | {"note": WAITING}),
    Row("at the limit", stopping(STOP_LIMIT), stop(ONE_LEFT), ERROR, Cause.STOP_LIMIT, LEASE | failed(NOT_CONFIRMED)),
    Row("unknown is never stopped", stopping(), stop(UNKNOWN), STOPPING, Cause.WAITING,
        LEASE | {"note": "waiting for pyannote (no answer) to stop"}),
    Row("unknown at the limit", stopping(STOP_LIMIT), stop(UNKNOWN), ERROR, Cause.STOP_LIMIT,
        LEASE | failed("could not confirm within 80 s that they stopped: pyannote (no answer)")),
    Row("not inspected is never stopped", stopping(STOP_LIMIT), stop(None), ERROR, Cause.STOP_LIMIT,
        LEASE | failed("could not confirm within 80 s that they stopped: the model services")),
    Row("a failed step before makes the backoff longer", stopping(STOP_LIMIT, failures=1, cycle_failed=True),
        stop(ONE_LEFT), ERROR, Cause.STOP_LIMIT, LEASE | failed(NOT_CONFIRMED, failures=2, wait=60)),
    Row("a lease lost in a slow stop is marked, and is no failure", stopping(), stop(ONE_LEFT, renewal=Lost("gone")),
        STOPPING, Cause.WAITING, {"lease_lost": True, "note": WAITING}),
    Row("a lease lost as all are stopped is marked", stopping(), stop(STOPPED, renewal=Lost("gone")), RELEASING,
        Cause.SERVICES_STOPPED, {"lease_lost": True}),
    Row("a renewal without an answer is told beside the wait", stopping(), stop(ONE_LEFT, renewal=Failed("503")),
        STOPPING, Cause.WAITING, {"last_error": RENEW_FAILED, "note": f"{WAITING}; {RENEW_FAILED}"}),
    Row("a renewal without an answer hides no earlier failure", stopping(last_error="first", cycle_failed=True),
        stop(ONE_LEFT, renewal=Failed("503")), STOPPING, Cause.WAITING, {"note": f"{WAITING}; {RENEW_FAILED}"}),
    Row("a slow stop outlives the lease", stopping(lease_expires_at=NOON), stop(ONE_LEFT, renewal=Failed("503")),
        STOPPING, Cause.WAITING, {"lease_lost": True, "last_error": RENEW_FAILED,
        "note": f"{WAITING}; {RENEW_FAILED}"}),
    Row("without a lease nothing is marked as lost", state(STOPPING), seen(services=ONE_LEFT), STOPPING, Cause.WAITING,
        {"note": WAITING}),
    Row("a lost lease stays lost", stopping(lease_lost=True), seen(services=STOPPED), RELEASING,
        Cause.SERVICES_STOPPED),
    Row("a lease that the broker renews is not lost", stopping(lease_lost=True), stop(ONE_LEFT), STOPPING, Cause.WAITING,
        LEASE | {"lease_lost": False, "note": WAITING}),
    Row("release is already met: it stays pending until llm", stopping(), stop(STOPPED, request=release(STOPPING)),
        RELEASING, Cause.SERVICES_STOPPED, LEASE),
    Row("audio-now is kept for llm", stopping(), stop(STOPPED, request=audio_now(STOPPING)), RELEASING,
        Cause.SERVICES_STOPPED, LEASE),
]  # fmt: skip


def rel(age=10, **fields):
    return leased(RELEASING, age, **fields)


def unknown_id(age=10, **fields):
    return state(RELEASING, age, **fields)


def answered(answer, **fields):
    return seen(services=STOPPED, release=answer, **fields)


def told(answer, **fields):
    return seen(services=STOPPED, status=answer, **fields)


RELEASING_ROWS = [
    Row("200 or 404", rel(), answered(Done()), LLM, Cause.RELEASED),
    Row("200 or 404 at the limit", rel(RELEASE_LIMIT), answered(Done()), LLM, Cause.RELEASED),
    Row("a lost lease is given up as well", rel(lease_lost=True), answered(Done()), LLM, Cause.RELEASED),
    Row("a whole cycle without a failed step: the count is 0 again", rel(failures=4, retry_after=ahead(9),
        last_error="old"), answered(Done()), LLM, Cause.RELEASED, {"failures": 0, "retry_after": None}),
    Row("after a failed cycle count and backoff survive", rel(failures=4, retry_after=ahead(9), last_error="old",
        cycle_failed=True), answered(Done()), LLM, Cause.RELEASED),
    Row("an answer from before a switch is not kept", rel(llm_checked_at=ago(5)), answered(Done()), LLM,
        Cause.RELEASED),
    Row("202: ask again", rel(), answered(Pending()), RELEASING, Cause.WAITING),
    Row("202 just before the limit", rel(RELEASE_LIMIT - 1e-6), answered(Pending()), RELEASING, Cause.WAITING),
    Row("202 at the limit", rel(RELEASE_LIMIT), answered(Pending()), ERROR, Cause.RELEASE_LIMIT,
        failed("the broker did not bring the language model back within 90 s")),
    Row("any other answer, or none", rel(), answered(Failed("500: out of memory")), ERROR, Cause.RELEASE_FAILED,
        failed("could not hand the GPU back: 500: out of memory")),
    Row("any other answer, at the limit", rel(RELEASE_LIMIT), answered(Failed("500")), ERROR, Cause.RELEASE_FAILED,
        failed("could not hand the GPU back: 500")),
    Row("nothing was answered at all", rel(), answered(None), ERROR, Cause.RELEASE_FAILED,
        failed("could not hand the GPU back: no answer")),
    Row("a service runs again", rel(), seen(services=services(S, R, U)), STOPPING, Cause.SERVICE_RUNS, {"note": FOUND}),
    Row("a service runs again, at the limit", rel(RELEASE_LIMIT), seen(services=services(S, R, S)), STOPPING,
        Cause.SERVICE_RUNS, {"note": FOUND}),
    Row("a service that runs again does not touch a failed cycle", rel(failures=1, cycle_failed=True, retry_after=NOON),
        seen(services=services(S, R, S)), STOPPING, Cause.SERVICE_RUNS, {"note": FOUND}),
    Row("a service that runs again keeps the lease's fate", rel(lease_lost=True), seen(services=services(S, R, S)),
        STOPPING, Cause.SERVICE_RUNS, {"note": FOUND}),
    Row("unknown: nothing is released", rel(), seen(services=UNKNOWN), RELEASING, Cause.UNKNOWN, {"note": BLIND}),
    Row("unknown just before the limit", rel(RELEASE_LIMIT - 1e-6), seen(services=UNKNOWN), RELEASING, Cause.UNKNOWN,
        {"note": BLIND}),
    Row("unknown at the limit", rel(RELEASE_LIMIT), seen(services=UNKNOWN), ERROR, Cause.RELEASE_LIMIT, failed(
        "the GPU was not handed back: for 90 s nothing could say whether it is free: pyannote (no answer)")),
    Row("not inspected at the limit", rel(RELEASE_LIMIT), seen(), ERROR, Cause.RELEASE_LIMIT, failed(
        "the GPU was not handed back: for 90 s nothing could say whether it is free: the model services")),
    Row("unknown services come before an unknown id", unknown_id(), seen(services=UNKNOWN, status=Free()), RELEASING,
        Cause.UNKNOWN, {"note": BLIND}),
    # the id is not known
    Row("unknown services: the id is stored already, and nothing is released", unknown_id(), seen(services=UNKNOWN,
        status=Held(HOLDER, "b7c1")), RELEASING, Cause.UNKNOWN, {"lease_id": "b7c1", "note": BLIND}),
    Row("unknown services at the limit: the id goes along to error, where it is renewed", unknown_id(RELEASE_LIMIT),
        seen(services=UNKNOWN, status=Held(HOLDER, "b7c1")), ERROR, Cause.RELEASE_LIMIT, {"lease_id": "b7c1"} | failed(
        "the GPU was not handed back: for 90 s nothing could say whether it is free: pyannote (no answer)")),
    Row("a service runs again: the id goes along to the stop, where it is renewed", unknown_id(),
        seen(services=services(S, R, S), status=Held(HOLDER, "b7c1")), STOPPING, Cause.SERVICE_RUNS,
        {"lease_id": "b7c1", "note": FOUND}),
    Row("the id is learned also at the limit, and released in the next tick", unknown_id(RELEASE_LIMIT),
        told(Held(HOLDER, "b7c1")), RELEASING, Cause.LEASE_LEARNED, {"lease_id": "b7c1"}),
    Row("status names our lease: it is stored, and released next", unknown_id(), told(Held(HOLDER, "b7c1", ahead(7))),
        RELEASING, Cause.LEASE_LEARNED, {"lease_id": "b7c1", "lease_expires_at": ahead(7)}),
    Row("status names our lease, without an end", unknown_id(), told(Held(HOLDER, "b7c1")), RELEASING,
        Cause.LEASE_LEARNED, {"lease_id": "b7c1"}),
    Row("status says free", unknown_id(), told(Free()), LLM, Cause.NOTHING_HELD),
    Row("status says free after a clean way", unknown_id(failures=1, retry_after=NOON), told(Free()), LLM,
        Cause.NOTHING_HELD, {"failures": 0, "retry_after": None}),
    Row("status names somebody else: that lease is never released", unknown_id(), told(Held("other", "zz9")), LLM,
        Cause.NOTHING_HELD, {"note": "the broker says that other holds the GPU"}),
    Row("status names nobody", unknown_id(), told(Held(None, "zz9")), LLM, Cause.NOTHING_HELD,
        {"note": "the broker says that somebody unnamed holds the GPU"}),
    Row("status cannot be had: back to llm, as a failure", unknown_id(), told(Failed("timed out")), LLM,
        Cause.STATUS_UNKNOWN, failed(STATUS_FAILED) | {"note": STATUS_FAILED}),
    Row("status cannot be had in a cycle that has failed: not counted again",
        unknown_id(failures=1, retry_after=ahead(9), cycle_failed=True, last_error="first"), told(Failed("timed out")),
        LLM, Cause.STATUS_UNKNOWN, {"note": STATUS_FAILED}),
    Row("status that names voxint without an id is unknown", unknown_id(), told(Held(HOLDER, None)), LLM,
        Cause.STATUS_UNKNOWN, failed("the broker says that voxint holds the GPU, but names no lease")
        | {"note": "the broker says that voxint holds the GPU, but names no lease"}),
    Row("status was not asked", unknown_id(), seen(services=STOPPED), LLM, Cause.STATUS_UNKNOWN, failed(
        "could not ask the broker who holds the GPU") | {"note": "could not ask the broker who holds the GPU"}),
    # requests
    *(
        Row(f"release made in {made_in} is met on entering llm, with no hold-off", rel(),
            answered(Done(), request=release(made_in)), LLM, Cause.RELEASED, request=MET)
        for made_in in Phase if made_in not in {LLM, Phase.DRAINING_POST}
    ),
    Row("release made in llm, on the way back from a service found there, waits for llm", rel(),
        answered(Done(), request=release(LLM)), LLM, Cause.RELEASED),
    Row("release made without a row waits for llm", rel(), answered(Done(), request=release(None)), LLM,
        Cause.RELEASED),
    Row("release waits while the broker is at work", rel(), answered(Pending(), request=release(RELEASING)), RELEASING,
        Cause.WAITING),
    Row("release is not met by an error", rel(), answered(Failed("500"), request=release(RELEASING)), ERROR,
        Cause.RELEASE_FAILED, failed("could not hand the GPU back: 500")),
    Row("audio-now is kept for llm", rel(), answered(Done(), request=audio_now(RELEASING)), LLM, Cause.RELEASED),
    Row("a release is met also where status says free", unknown_id(), told(Free(), request=release(STOPPING)), LLM,
        Cause.NOTHING_HELD, request=MET),
]  # fmt: skip


def err(age=10, **fields):
    return leased(ERROR, age, **({"failures": 2, "cycle_failed": True, "last_error": "first"} | fields))


ERROR_ROWS = [
    Row("just before retry_after", err(retry_after=NOON + JUST), stop(STOPPED), ERROR, Cause.WAITING, LEASE),
    Row("at retry_after", err(retry_after=NOON), stop(STOPPED), STOPPING, Cause.RETRY, LEASE),
    Row("no retry_after is no reason to wait", err(), stop(RUNNING), STOPPING, Cause.RETRY, LEASE),
    Row("what still runs is named", err(retry_after=ahead(9)), stop(ONE_LEFT), ERROR, Cause.WAITING,
        LEASE | {"note": WAITING}),
    Row("release retries now", err(retry_after=ahead(900)), stop(STOPPED, request=release(ERROR)), STOPPING,
        Cause.RELEASE_ASKED, LEASE, ACTED),
    Row("release is named also where the wait is over", err(), stop(STOPPED, request=release(RELEASING)), STOPPING,
        Cause.RELEASE_ASKED, LEASE, ACTED),
    Row("audio-now is kept and does not retry", err(retry_after=ahead(9)), stop(STOPPED, request=audio_now(ERROR)),
        ERROR, Cause.WAITING, LEASE),
    Row("a lease lost in error is marked, and counts nothing", err(retry_after=ahead(9)),
        stop(STOPPED, renewal=Lost("gone")), ERROR, Cause.WAITING, {"lease_lost": True}),
    Row("a renewal without an answer is told, and hides no failure", err(retry_after=ahead(9)),
        stop(STOPPED, renewal=Failed("503")), ERROR, Cause.WAITING, {"note": RENEW_FAILED}),
    Row("a renewal with another id is kept", err(retry_after=ahead(9)), stop(STOPPED, renewal=Granted("c9", None)),
        ERROR, Cause.WAITING, {"lease_id": "c9", "lease_expires_at": None}),
    Row("the lease passes its end", err(retry_after=ahead(9), lease_expires_at=NOON), stop(STOPPED, renewal=None),
        ERROR, Cause.WAITING, {"lease_lost": True}),
]  # fmt: skip

ROWS = STOPPING_ROWS + RELEASING_ROWS + ERROR_ROWS


@pytest.mark.parametrize("row", ROWS, ids=ids(ROWS))
def test_edges_of_the_way_back(row):
    row.check()
