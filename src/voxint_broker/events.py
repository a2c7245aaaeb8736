"""What happened, for those who look later or elsewhere: the audit file, counters, and notifications.

Nothing here may hold the broker up: a file that cannot be written is said in the log, and a notification runs beside.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import subprocess
import threading
from typing import TYPE_CHECKING, Any

from voxint_broker import clock
from voxint_broker.record import State

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from voxint_broker.record import Record

log = logging.getLogger("voxint_broker")

_WAITING = 100
_HOOK_SECONDS = 30.0

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Seconds: upper bounds of the counted durations."""


class Events:
    """Where the engine tells what happened. Made without arguments it only counts."""

    def __init__(self, audit: Path | None = None, hook: Sequence[str] | None = None) -> None:
        self._audit = audit
        self._hook = tuple(hook or ())
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue(_WAITING)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.answers: dict[tuple[str, int], int] = {}
        self.moves: dict[str, int] = {}
        self.durations: dict[str, list[int]] = {}
        self.sums: dict[str, float] = {}

    def answered(self, call: str, status: int) -> None:
        """A call was answered."""
        with self._lock:
            self.answers[call, status] = self.answers.get((call, status), 0) + 1

    def moved(self, before: Record, after: Record) -> None:
        """The state changed. Grants and releases go to the audit file."""
        seconds = max((after.since - before.since).total_seconds(), 0.0)
        with self._lock:
            self.moves[after.state.value] = self.moves.get(after.state.value, 0) + 1
            counts = self.durations.setdefault(before.state.value, [0] * (len(BUCKETS) + 1))
            counts[next((place for place, bound in enumerate(BUCKETS) if seconds <= bound), len(BUCKETS))] += 1
            self.sums[before.state.value] = self.sums.get(before.state.value, 0.0) + seconds
        lease = after.lease or before.lease
        self._write(
            {
                "at": clock.now().isoformat(),
                "event": f"{before.state.value} -> {after.state.value}",
                "holder": lease.holder if lease else None,
                "lease_id": lease.id if lease else None,
                "fence": after.fence,
                "seconds": round(seconds, 3),
                "reason": after.reason,
            }
        )

    def told(self, text: str, phase: str) -> None:
        """Something a person should know: given to the command hook as JSON on its stdin."""
        if not self._hook:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._notify, name="broker-notify", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait({"at": clock.now().isoformat(), "phase": phase, "text": text})
        except queue.Full:
            log.warning("a notification was left out: %d are waiting already", _WAITING)

    def close(self) -> None:
        """Give what waits a moment."""
        if self._thread is not None:
            with contextlib.suppress(queue.Full):  # so many wait that this moment is not enough for them anyhow
                self._queue.put_nowait(None)
            self._thread.join(2.0)

    def _write(self, line: dict[str, Any]) -> None:
        if self._audit is None:
            return
        try:
            with self._audit.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            log.warning("cannot write the audit file %s: %s", self._audit, error.strerror)

    def _notify(self) -> None:
        while (what := self._queue.get()) is not None:
            try:
                done = subprocess.run(
                    self._hook,
                    input=json.dumps(what).encode(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=_HOOK_SECONDS,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                log.warning("the notification hook failed: %s", type(error).__name__)
                continue
            if done.returncode != 0:
                log.warning("the notification hook ended with %d", done.returncode)


def metrics(events: Events, status: dict[str, Any]) -> str:
    """The counters in Prometheus' text format."""
    lines = ["# TYPE voxint_broker_phase gauge"]
    lines += [f'voxint_broker_phase{{phase="{state}"}} {int(status["phase"] == state)}' for state in State]
    lines.append("# TYPE voxint_broker_fence gauge")
    lines.append(f"voxint_broker_fence {status['fence']}")
    lines.append("# TYPE voxint_broker_service_runs gauge")
    for name, service in sorted(status["services"].items()):
        lines.append(f'voxint_broker_service_runs{{service="{name}"}} {int(service["condition"] == "running")}')
    lines.append("# TYPE voxint_broker_foreign_processes gauge")
    lines.append(f"voxint_broker_foreign_processes {len(status['foreign'])}")
    if status["free_mib"] is not None:
        lines.append("# TYPE voxint_broker_free_mib gauge")
        lines.append(f"voxint_broker_free_mib {status['free_mib']}")
    lines.append("# TYPE voxint_broker_answers_total counter")
    for (call, code), count in sorted(events.answers.items()):
        lines.append(f'voxint_broker_answers_total{{call="{call}",code="{code}"}} {count}')
    lines.append("# TYPE voxint_broker_moves_total counter")
    for phase, count in sorted(events.moves.items()):
        lines.append(f'voxint_broker_moves_total{{phase="{phase}"}} {count}')
    lines.append("# TYPE voxint_broker_phase_seconds histogram")
    for phase, counts in sorted(events.durations.items()):
        below = 0
        for bound, count in zip(BUCKETS, counts, strict=False):
            below += count
            lines.append(f'voxint_broker_phase_seconds_bucket{{phase="{phase}",le="{bound:g}"}} {below}')
        total = below + counts[-1]
        lines.append(f'voxint_broker_phase_seconds_bucket{{phase="{phase}",le="+Inf"}} {total}')
        lines.append(f'voxint_broker_phase_seconds_sum{{phase="{phase}"}} {events.sums[phase]:.6f}')
        lines.append(f'voxint_broker_phase_seconds_count{{phase="{phase}"}} {total}')
    return "\n".join(lines) + "\n"
