"""Collects what can be seen of the services that run: their health answers, GPU memory, and what they printed.

Bounded in time as a whole, and never raises: what cannot be seen in time is not seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from voxint.gpu_phase.reasons import clean
from voxint.services.health import HEALTH_SECONDS, probe_all
from voxint.services.parallel import Calls
from voxint.services.placement.amd import read_amd
from voxint.services.placement.judge import Observation
from voxint.services.placement.memory import GpuRows, held_by, sees_every_process
from voxint.services.placement.nvml import read_nvml

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from voxint.services.health import Health
    from voxint.services.placement.judge import Printed
    from voxint.settings import Settings

MEMORY_SECONDS = 3.0
"""Longest wait for the driver: a broken one may never answer."""

_PROVIDERS_SHOWN = 8
_rows_calls = Calls[GpuRows]()
"""One question to the driver at a time in this process: one that hangs is waited for, not asked again."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where evidence comes from, besides the health answers. Each may be missing."""

    rows: Callable[[], GpuRows] | None = None
    """The processes on the GPUs."""
    pids: Callable[[], Mapping[str, Collection[int]]] | None = None
    """The processes of each service, by their numbers on the host."""
    printed: Callable[[str], Printed | None] | None = None
    """What a service printed since it started."""


def sources(
    settings: Settings,
    pids: Callable[[], Mapping[str, Collection[int]]] | None = None,
    printed: Callable[[str], Printed | None] | None = None,
) -> Sources:
    """The sources of this host.

    Args:
        settings: names the tier, which names the make of the GPU.
        pids: the processes of each service, where somebody knows them.
        printed: what each service printed, where somebody can read it.
    """
    reader = {"gpu": read_nvml, "rocm": read_amd}.get(settings.compute_tier)
    if reader is None or pids is None or not sees_every_process():
        return Sources(printed=printed)
    return Sources(rows=partial(reader, host_numbers=True), pids=pids, printed=printed)


def observe(
    settings: Settings, names: Collection[str], from_where: Sources, warmed: Collection[str] = ()
) -> dict[str, Observation]:
    """What can be seen of these services now. One that nobody answers for does not run.

    Args:
        settings: where each answers.
        names: which ones.
        from_where: the other sources.
        warmed: those that have just served a request, so that their model is known to be loaded.
    """
    answers = probe_all({name: settings.services[name].health_url for name in names}, HEALTH_SECONDS)
    seen = {name: observation_of(health, warmed=name in warmed) for name, health in answers.items()}
    seen = {name: _with_printed(name, one, from_where) for name, one in seen.items()}
    return _with_memory(seen, from_where)


def observation_of(health: Health, *, warmed: bool = False) -> Observation:
    """What a health answer says.

    `device` is the device as the loaded model tells it; `providers`, onnxruntime's list in its order; a
    `device_source` of `requested` says that the device is only what was asked for. Our own servers answer 200 only
    once their model is loaded, and name it; of others a loaded model is known only after a request.
    """
    if not health.ready:
        return Observation(running=False)
    body = health.body or {}
    return Observation(
        loaded=warmed or (body.get("status") == "ok" and isinstance(body.get("model"), str)),
        device=clean(health.device) if health.device else None,
        providers=_texts(body.get("providers")),
        echoed=body.get("device_source") == "requested",
    )


def _texts(value: Any) -> tuple[str, ...]:  # noqa: ANN401 - whatever JSON holds
    if not isinstance(value, list):
        return ()
    return tuple(clean(text) for text in value[:_PROVIDERS_SHOWN] if isinstance(text, str))


def _with_printed(name: str, seen: Observation, from_where: Sources) -> Observation:
    if from_where.printed is None or not seen.running:
        return seen
    return replace(seen, printed=from_where.printed(name))


def _with_memory(seen: dict[str, Observation], from_where: Sources) -> dict[str, Observation]:
    if from_where.rows is None or from_where.pids is None or not any(one.running for one in seen.values()):
        return seen
    rows = _rows_calls.at_once({"rows": from_where.rows}, MEMORY_SECONDS)["rows"]
    if isinstance(rows, Exception):
        return seen
    try:
        pids = from_where.pids()
    except OSError:
        return seen
    return {
        name: replace(one, gpu_bytes=held_by(rows, pids.get(name, ())), gpu_kind=rows.kind) if one.running else one
        for name, one in seen.items()
    }
