"""The verdict on one model service: what was expected of it and what was observed in, a word and its reason out. Pure.

The evidence is looked at in the order of its worth, and the first that tells anything decides: the device in the health
answer, GPU memory by process, what the service printed, a timed request. What cannot be read is not evidence: it ends
in `unknown`, never in a blame. Time alone says `slow`, never `wrong`: a busy or a small GPU is slow too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from voxint.services.placement.devices import Device, device_named, device_of_providers, fits

HOLDS_A_MODEL_BYTES = 1 << 30
"""From here on, GPU memory proves a model. A bare CUDA context takes 0.3 to 0.7 GB and proves nothing."""

SLOW_SHARE = 1 / 3
"""Below this share of a GPU's rate, a rate counts as slow. The slowest GPU process of 20 had 54 % of the usual rate,
the fastest one on the CPU 14 % (see docs/explanation/placement.md)."""

_GIB = 1 << 30


class Verdict(StrEnum):
    """What is said of a service's placement. Only `wrong` may ever hold anything up."""

    OK = "ok"
    WRONG = "wrong"
    SLOW = "slow"
    UNKNOWN = "unknown"
    NOT_EXPECTED = "not_expected"  # nothing is expected of it, so nothing is said


class Evidence(StrEnum):
    """What a verdict rests on."""

    DEVICE = "device"
    MEMORY = "memory"
    LOG = "log"
    PROBE = "probe"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Expectation:
    """The devices that a service may run on; none means that nothing is expected of it."""

    devices: frozenset[Device] = frozenset()

    def __str__(self) -> str:
        """For people: `cuda`, `cuda or cpu`, `anything`."""
        order = [device for device in Device if device in self.devices]
        return " or ".join(order) or "anything"

    @property
    def wants_gpu(self) -> bool:
        """Whether only a GPU will do."""
        return bool(self.devices) and Device.CPU not in self.devices


@dataclass(frozen=True, slots=True)
class Timing:
    """How fast a service was seen to work, and how fast it is on this GPU. Both in the same unit a second."""

    rate: float
    unit: str
    gpu_rate: float | None = None
    tells: bool = True
    """False where the time is known to tell nothing: a first request, a short one, a busy lane."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What a service's own log says since its process started."""

    fell_back: str | None = None
    """The line by which a runtime says that it took the CPU in place of a GPU."""
    timing: Timing | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """What could be seen of one service. None, or empty, is "could not be seen", never "no"."""

    running: bool = True
    loaded: bool = True
    """Whether its model is loaded. One that is not yet loaded holds no memory on any device."""
    device: str | None = None
    providers: tuple[str, ...] = ()
    """onnxruntime's providers, in order, where the health answer gives them."""
    echoed: bool = False
    """Whether the device is only repeated from the configuration, and not read back from the loaded model."""
    gpu_bytes: int | None = None
    """GPU memory of all its processes; 0 only where the rows of other processes of this machine can be seen."""
    gpu_kind: Device = Device.GPU
    printed: Printed | None = None
    probe: Timing | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one service, what it rests on, and why, in words."""

    service: str
    verdict: Verdict
    expected: Expectation
    evidence: Evidence
    why: str
    device: Device | None = None

    @property
    def blame(self) -> str:
        """The sentence for a wrong or a slow one; empty for every other."""
        match self.verdict:
            case Verdict.WRONG:
                return f"{self.service} runs on {self.device or 'another device'}, expected {self.expected}"
            case Verdict.SLOW:
                return f"{self.service} is slow: {self.why}"
            case _:
                return ""


def judge(service: str, expected: Expectation, observation: Observation) -> Judgement:
    """Turn what was observed of a service into a verdict.

    Args:
        service: its name.
        expected: the devices that it may run on.
        observation: what could be seen of it.
    """
    if not expected.devices:
        return Judgement(service, Verdict.NOT_EXPECTED, expected, Evidence.NONE, "nothing is expected of it")
    if not observation.running:
        return Judgement(service, Verdict.UNKNOWN, expected, Evidence.NONE, "it does not run")
    for look in (_by_device, _by_memory, _by_log, _by_probe):
        found = look(service, expected, observation)
        if found is not None:
            return found
    return Judgement(service, Verdict.UNKNOWN, expected, Evidence.NONE, _why_unknown(observation))


def _by_device(service: str, expected: Expectation, seen: Observation) -> Judgement | None:
    if seen.echoed:
        return None
    device = device_of_providers(seen.providers) or device_named(seen.device or "")
    if device is None:
        return None
    named = ", ".join(seen.providers) if device_of_providers(seen.providers) else seen.device
    return _placed(service, expected, device, Evidence.DEVICE, f"its health answer says {named}")


def _by_memory(service: str, expected: Expectation, seen: Observation) -> Judgement | None:
    held = seen.gpu_bytes
    if held is None:
        return None
    if held >= HOLDS_A_MODEL_BYTES:
        why = f"it holds {held / _GIB:.1f} GiB of GPU memory"
        return _placed(service, expected, seen.gpu_kind, Evidence.MEMORY, why)
    if held == 0 and seen.loaded:
        return _placed(service, expected, Device.CPU, Evidence.MEMORY, "its model is loaded and holds no GPU memory")
    return None


def _by_log(service: str, expected: Expectation, seen: Observation) -> Judgement | None:
    printed = seen.printed
    if printed is None:
        return None
    if printed.fell_back is not None:
        return _placed(service, expected, Device.CPU, Evidence.LOG, f"it printed: {printed.fell_back}")
    return _by_time(service, expected, printed.timing, Evidence.LOG)


def _by_probe(service: str, expected: Expectation, seen: Observation) -> Judgement | None:
    return _by_time(service, expected, seen.probe, Evidence.PROBE)


def _by_time(service: str, expected: Expectation, timing: Timing | None, evidence: Evidence) -> Judgement | None:
    if timing is None or not timing.tells or timing.gpu_rate is None or not expected.wants_gpu:
        return None
    slow = timing.rate < timing.gpu_rate * SLOW_SHARE
    why = f"{timing.rate:,.0f} {timing.unit}/s, where this GPU does {timing.gpu_rate:,.0f}"
    if slow:
        return Judgement(service, Verdict.SLOW, expected, evidence, why)
    return Judgement(service, Verdict.OK, expected, evidence, why, Device.GPU)


def _placed(service: str, expected: Expectation, device: Device, evidence: Evidence, why: str) -> Judgement:
    verdict = Verdict.OK if fits(device, expected.devices) else Verdict.WRONG
    return Judgement(service, verdict, expected, evidence, why, device)


def _why_unknown(seen: Observation) -> str:
    if seen.device and seen.echoed:
        return f"its health answer only repeats what it was asked for ({seen.device})"
    if seen.device:
        return f"its health answer says {seen.device!r}, which names no device"
    if seen.gpu_bytes:
        return f"{seen.gpu_bytes / _GIB:.1f} GiB of GPU memory is what an empty context takes"
    return "it reports no device, and nothing else tells"
