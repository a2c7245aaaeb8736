"""The verdict on a service's placement: its table, its order of evidence, and the alarms that must stay silent."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from voxint.services.placement.devices import Device, device_named, device_of_providers, fits
from voxint.services.placement.expectations import BY_TIER, expectations
from voxint.services.placement.judge import Evidence, Expectation, Observation, Printed, Timing, Verdict, judge

CUDA = Expectation(frozenset({Device.CUDA}))
EITHER = Expectation(frozenset({Device.CUDA, Device.CPU}))
GIB = 1 << 30
SLOW = Timing(84, "characters", 1000)
FAST = Timing(947, "characters", 1000)
FALLBACK = Printed("EP Error ... Falling back to ['CPUExecutionProvider'] and retrying.")

ROWS = [
    # what is seen, expected, verdict, evidence
    (Observation(device="cuda:0"), CUDA, Verdict.OK, Evidence.DEVICE),
    (Observation(device="cpu"), CUDA, Verdict.WRONG, Evidence.DEVICE),
    (Observation(device="cpu"), EITHER, Verdict.OK, Evidence.DEVICE),
    (Observation(device="mps"), CUDA, Verdict.WRONG, Evidence.DEVICE),
    (Observation(device="auto"), CUDA, Verdict.UNKNOWN, Evidence.NONE),
    (Observation(device="cuda", echoed=True), CUDA, Verdict.UNKNOWN, Evidence.NONE),
    (Observation(device="cpu", echoed=True), CUDA, Verdict.UNKNOWN, Evidence.NONE),
    (Observation(), CUDA, Verdict.UNKNOWN, Evidence.NONE),
    (Observation(providers=("CUDAExecutionProvider", "CPUExecutionProvider")), CUDA, Verdict.OK, Evidence.DEVICE),
    (Observation(providers=("CPUExecutionProvider", "CUDAExecutionProvider")), CUDA, Verdict.WRONG, Evidence.DEVICE),
    (Observation(gpu_bytes=7 * GIB), CUDA, Verdict.OK, Evidence.MEMORY),
    (Observation(gpu_bytes=0), CUDA, Verdict.WRONG, Evidence.MEMORY),
    (Observation(gpu_bytes=0, loaded=False), CUDA, Verdict.UNKNOWN, Evidence.NONE),
    (Observation(gpu_bytes=570 << 20), CUDA, Verdict.UNKNOWN, Evidence.NONE),  # a context alone proves nothing
    (Observation(gpu_bytes=None), CUDA, Verdict.UNKNOWN, Evidence.NONE),
    (Observation(printed=FALLBACK), CUDA, Verdict.WRONG, Evidence.LOG),
    (Observation(printed=FALLBACK), EITHER, Verdict.OK, Evidence.LOG),
    (Observation(printed=Printed(timing=SLOW)), CUDA, Verdict.SLOW, Evidence.LOG),
    (Observation(printed=Printed(timing=FAST)), CUDA, Verdict.OK, Evidence.LOG),
    (Observation(printed=Printed(timing=SLOW)), EITHER, Verdict.UNKNOWN, Evidence.NONE),
    (Observation(probe=SLOW), CUDA, Verdict.SLOW, Evidence.PROBE),
    (Observation(probe=FAST), CUDA, Verdict.OK, Evidence.PROBE),
    (Observation(probe=replace(SLOW, tells=False)), CUDA, Verdict.UNKNOWN, Evidence.NONE),
    (Observation(probe=replace(SLOW, gpu_rate=None)), CUDA, Verdict.UNKNOWN, Evidence.NONE),
    (Observation(running=False, device="cpu"), CUDA, Verdict.UNKNOWN, Evidence.NONE),
    (Observation(device="cpu"), Expectation(), Verdict.NOT_EXPECTED, Evidence.NONE),
]


@pytest.mark.parametrize(("seen", "expected", "verdict", "evidence"), ROWS)
def test_each_row_of_the_table(seen, expected, verdict, evidence):
    found = judge("kokoro", expected, seen)
    assert (found.verdict, found.evidence) == (verdict, evidence)
    assert found.why


def test_a_third_of_the_usual_rate_is_where_slow_begins():
    just_below = judge("kokoro", CUDA, Observation(probe=Timing(299.9, "characters", 900)))
    exactly = judge("kokoro", CUDA, Observation(probe=Timing(300, "characters", 900)))
    assert (just_below.verdict, exactly.verdict) == (Verdict.SLOW, Verdict.OK)


def test_memory_proves_a_model_from_one_gibibyte_on():
    below, exactly = (judge("w", CUDA, Observation(gpu_bytes=size)).verdict for size in (GIB - 1, GIB))
    assert (below, exactly) == (Verdict.UNKNOWN, Verdict.OK)


def test_the_first_evidence_that_tells_decides():
    """Whatever stands behind a telling piece of evidence changes nothing; in front of it, only a telling one does."""
    device = [{}, {"device": "cpu"}, {"device": "cuda"}]
    memory = [{}, {"gpu_bytes": 0}, {"gpu_bytes": 2 * GIB}]
    log = [{}, {"printed": FALLBACK}, {"printed": Printed(timing=FAST)}]
    probe = [{}, {"probe": SLOW}, {"probe": FAST}]
    order = [Evidence.DEVICE, Evidence.MEMORY, Evidence.LOG, Evidence.PROBE]
    for parts in product(device, memory, log, probe):
        whole = judge("w", CUDA, Observation(**parts[0], **parts[1], **parts[2], **parts[3]))
        first = next((number for number, part in enumerate(parts) if part), None)
        if first is None:
            assert whole.verdict is Verdict.UNKNOWN
            continue
        alone = judge("w", CUDA, Observation(**parts[first]))
        assert whole.evidence is order[first]
        assert whole == alone


def test_time_alone_never_says_wrong():
    for rate, gpu_rate in product((0.0, 0.1, 71, 84, 1e6), (None, 1, 1000, 1e9)):
        timing = Timing(rate, "characters", gpu_rate)
        for seen in (Observation(probe=timing), Observation(printed=Printed(timing=timing))):
            assert judge("w", CUDA, seen).verdict is not Verdict.WRONG


def test_the_sentence_of_a_wrong_one_names_both_devices():
    assert judge("pyannote", CUDA, Observation(device="cpu")).blame == "pyannote runs on cpu, expected cuda"
    assert judge("pyannote", EITHER, Observation(device="mps")).blame == "pyannote runs on metal, expected cuda or cpu"
    assert judge("pyannote", CUDA, Observation(device="cuda")).blame == ""


@pytest.mark.parametrize("tier", ["cpu", "metal", "simulated"])
def test_a_tier_without_a_gpu_raises_no_alarm_whatever_is_seen(tier):
    for name, expected in expectations(tier, ("whisper", "pyannote", "titanet", "speaches")).items():
        for seen in (Observation(device="cpu"), Observation(gpu_bytes=0), Observation(probe=SLOW)):
            assert judge(name, expected, seen).verdict is Verdict.NOT_EXPECTED


def test_and_the_gpu_tier_does_raise_it():
    for name, expected in expectations("gpu", ("whisper", "pyannote", "titanet", "speaches")).items():
        assert judge(name, expected, Observation(device="cpu")).verdict is Verdict.WRONG
        assert judge(name, expected, Observation(device="cuda:0")).verdict is Verdict.OK


def test_on_rocm_only_whisper_must_be_on_the_gpu():
    expected = expectations("rocm", ("whisper", "pyannote", "titanet"))
    verdicts = {name: judge(name, one, Observation(device="cpu")).verdict for name, one in expected.items()}
    assert verdicts == {"whisper": Verdict.WRONG, "pyannote": Verdict.OK, "titanet": Verdict.OK}
    # PyTorch on ROCm says cuda, CTranslate2 too; others say hip.
    for device in ("cuda:0", "hip", "rocm"):
        assert judge("whisper", expected["whisper"], Observation(device=device)).verdict is Verdict.OK


def test_a_service_that_no_tier_knows_is_left_alone():
    expected = expectations("gpu", ("somebody-elses",))["somebody-elses"]
    assert judge("somebody-elses", expected, Observation(device="cpu")).verdict is Verdict.NOT_EXPECTED


def test_what_the_operator_says_stands_in_place_of_the_tier():
    said = {"titanet": ("cuda", "cpu"), "whisper": ("any",)}
    expected = expectations("gpu", ("whisper", "pyannote", "titanet"), said)
    assert {name: str(one) for name, one in expected.items()} == {
        "whisper": "anything",
        "pyannote": "cuda",
        "titanet": "cuda or cpu",
    }


def test_every_tier_of_the_settings_is_known():
    from typing import get_args

    from voxint.settings import Settings

    assert set(BY_TIER) == set(get_args(Settings.model_fields["compute_tier"].annotation))


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("cuda", Device.CUDA),
        ("cuda:1", Device.CUDA),
        (" CUDA:0,1 ", Device.CUDA),
        ("hip:0", Device.ROCM),
        ("mps", Device.METAL),
        ("cpu", Device.CPU),
        ("CPUExecutionProvider", Device.CPU),
        ("MIGraphXExecutionProvider", Device.ROCM),
        ("auto", None),
        ("default", None),
        ("", None),
        ("cudalike", None),
        ("xpu", None),
    ],
)
def test_names_of_devices(name, device):
    assert device_named(name) is device


def test_providers_are_read_as_priorities():
    assert device_of_providers(("TensorrtExecutionProvider", "CPUExecutionProvider")) is Device.CUDA
    assert device_of_providers(("CPUExecutionProvider", "CUDAExecutionProvider")) is Device.CPU
    assert device_of_providers(("SomethingNewExecutionProvider", "CPUExecutionProvider")) is None
    assert device_of_providers(()) is None


def test_gpu_stands_for_every_gpu_and_never_for_the_cpu():
    for device in (Device.CUDA, Device.ROCM, Device.METAL, Device.GPU):
        assert fits(device, {Device.GPU})
        assert not fits(device, {Device.CPU})
    assert not fits(Device.CPU, {Device.GPU})
    assert fits(Device.GPU, {Device.CUDA})
    assert fits(Device.CUDA, {Device.ROCM})
    assert not fits(Device.ROCM, {Device.CUDA})
