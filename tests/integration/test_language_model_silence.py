"""Since when the language model has not answered: kept by the ticks of one stay in llm, and gone with an answer."""

from __future__ import annotations

from datetime import timedelta

from phase_world import STAGES, FakeBroker, FakeLanguageModel, FakeServices
from stored_phase import store_phase

from voxint.gpu_phase.model import Phase, RequestKind
from voxint.gpu_phase.policy import Policy
from voxint.gpu_phase.status import look
from voxint.gpu_phase.store import PhaseStore
from voxint.gpu_phase.tick import Machine, tick
from voxint.settings import load_settings

POLICY = Policy(min_dwell=timedelta(0))


def test_the_first_silent_tick_counts_and_an_answer_or_a_switch_ends_it(engine):
    store = PhaseStore(engine, STAGES, grace=timedelta(seconds=60), attempts=3)
    model = FakeLanguageModel()
    machine = Machine(store, FakeBroker(), FakeServices(), model, POLICY)
    store_phase(engine, "llm")
    tick(machine)
    assert store.read().llm_silent_since is None

    model.ready = False
    tick(machine)
    first = store.read()
    assert first.llm_silent_since == first.ticked_at
    tick(machine)
    assert store.read().llm_silent_since == first.llm_silent_since
    assert store.read().ticked_at > first.ticked_at

    model.ready = True
    tick(machine)
    assert store.read().llm_silent_since is None

    model.ready = False
    tick(machine)
    assert store.read().llm_silent_since is not None
    store.record_request(RequestKind.AUDIO_NOW, "test")
    tick(machine)
    assert store.read().state.phase is Phase.DRAINING_POST
    assert store.read().llm_silent_since is None


def test_the_read_model_says_when_it_is_too_long(engine):
    store = PhaseStore(engine, STAGES, grace=timedelta(seconds=60), attempts=3)
    settings = load_settings({"GPU_PHASE_RELEASE_LIMIT_SECONDS": "60"})
    words = "the language model does not answer: llm connection refused"
    now = store_phase(engine, "llm", note=words)
    for silent, overdue in ((5, False), (61, True)):
        store_phase(engine, "llm", note=words, llm_silent_since=now - timedelta(seconds=silent))
        assert look(store, settings).llm_overdue is overdue


def test_a_hand_back_that_has_failed_is_remembered_until_it_succeeds(engine):
    store = PhaseStore(engine, STAGES, grace=timedelta(seconds=60), attempts=3)
    settings = load_settings({})
    broker, services = FakeBroker(), FakeServices()
    machine = Machine(store, broker, services, FakeLanguageModel(), POLICY)
    store_phase(engine, "releasing")
    from voxint.gpu_phase.outcomes import Failed

    broker.answers["release"] = Failed("out of memory")
    tick(machine)
    assert store.read().state.phase is Phase.ERROR
    store.record_request(RequestKind.RELEASE, "test")
    tick(machine)
    assert store.read().state.phase is Phase.STOPPING_SERVICES
    assert look(store, settings).hand_back_failed
    tick(machine)
    assert (store.read().state.phase, look(store, settings).hand_back_failed) == (Phase.RELEASING, True)
    del broker.answers["release"]
    tick(machine)
    assert (store.read().state.phase, look(store, settings).hand_back_failed) == (Phase.LLM, False)
