"""Stand-ins for what a tick asks: a broker, model services, a language model. Each answers what it is told to."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from voxint.gpu_phase.model import Condition, Lane, LlmSeen, ServiceSeen
from voxint.gpu_phase.outcomes import Done, Free, Granted, Held, Lost
from voxint.gpu_phase.queue import StagePlan

STAGES = StagePlan(
    (
        ("acquire", Lane.GPU),
        ("prepare", Lane.GPU),
        ("transcribe", Lane.GPU),
        ("diarize_embed", Lane.GPU),
        ("enhance_match", Lane.POST),
        ("finalize", Lane.POST),
    ),
    {"transcribe": frozenset({"whisper"}), "diarize_embed": frozenset({"pyannote", "titanet"})},
)


@dataclass
class FakeBroker:
    """Grants at once, unless told otherwise. Keeps what it was asked."""

    calls: list = field(default_factory=list)
    lease: str | None = None
    number: int = 0
    answers: dict = field(default_factory=dict)  # call name -> an outcome to give instead

    def acquire(self, now, ttl):
        self.calls.append(("acquire", now, ttl))
        if "acquire" in self.answers:
            return self.answers["acquire"]
        self.number += 1
        self.lease = f"lease-{self.number}"
        return Granted(self.lease, now + ttl)

    def renew(self, lease_id, now, ttl):
        self.calls.append(("renew", lease_id))
        if "renew" in self.answers:
            return self.answers["renew"]
        if lease_id != self.lease:
            return Lost("the broker does not know it")
        return Granted(lease_id, now + ttl)

    def release(self, lease_id):
        self.calls.append(("release", lease_id))
        if "release" in self.answers:
            return self.answers["release"]
        self.lease = None
        return Done()

    def status(self, now):
        self.calls.append(("status",))
        if "status" in self.answers:
            return self.answers["status"]
        return Held("voxint", self.lease, now + timedelta(minutes=10)) if self.lease else Free()

    def names(self):
        return [call[0] for call in self.calls]


@dataclass
class FakeServices:
    """Three services that start and stop at once, unless told otherwise."""

    running: set = field(default_factory=set)
    names: tuple = ("whisper", "pyannote", "titanet")
    unknown: str = ""
    calls: list = field(default_factory=list)
    stop_works: bool = True

    def _seen(self):
        if self.unknown:
            return tuple(ServiceSeen(name, Condition.UNKNOWN, detail=self.unknown) for name in self.names)
        return tuple(
            ServiceSeen(name, Condition.RUNNING, healthy=True)
            if name in self.running
            else ServiceSeen(name, Condition.STOPPED)
            for name in self.names
        )

    def inspect(self):
        self.calls.append("inspect")
        return self._seen()

    def health(self):
        self.calls.append("health")
        return self._seen()

    def start(self):
        self.calls.append("start")
        self.running |= set(self.names)
        return {}

    def stop(self):
        self.calls.append("stop")
        if self.stop_works:
            self.running.clear()


@dataclass
class FakeLanguageModel:
    """Answers, or does not."""

    ready: bool = True
    asked: int = 0

    def probe(self, since):
        self.asked += 1
        return LlmSeen(self.ready, "" if self.ready else "llm: connection refused")
