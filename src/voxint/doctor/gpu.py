"""Checks around the GPU: the model services, the language model's endpoints, the phase, and the broker."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from voxint.doctor.card_groups import card_groups
from voxint.doctor.expected import Probe, Side, finding
from voxint.doctor.finding import Finding, Severity
from voxint.gpu_phase.model import HOLDER, Phase
from voxint.gpu_phase.outcomes import Failed, Held
from voxint.gpu_phase.reasons import clean, held_by_another, mend
from voxint.gpu_phase.wording.figures import span
from voxint.gpu_phase.wording.phases import sharing_line
from voxint.lease.client import LeaseClient
from voxint.llm.client import api_url, auth_headers
from voxint.llm.readiness import TOTAL, list_problem
from voxint.services.exchange import Ask, ExchangeError, NotListeningError, answer_to, run
from voxint.services.health import probe_all

if TYPE_CHECKING:
    from voxint.doctor.checks import Surroundings
    from voxint.gpu_phase.outcomes import StatusOutcome
    from voxint.gpu_phase.ports import Broker
    from voxint.settings import LlmEndpoint, Settings

_LOOPBACK = {"127.0.0.1", "localhost", "::1"}
CLOCK_APART = timedelta(seconds=60)
_LIST_BYTES = 4 << 20
CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))


def model_services(around: Surroundings) -> list[Finding]:
    """Each model service answers, or is off on purpose."""
    settings = around.parts.settings
    services = settings.services
    answers = probe_all({name: service.health_url for name, service in services.items()})
    found = []
    for name, health in answers.items():
        words = f"{shown(services[name].health_url)} {health.detail}"
        one = finding(f"service {name}", Side.SERVICE, Probe(health.ready, health.looks_stopped, words), around.view)
        hint = card_groups(settings, name) if one.severity is Severity.FAIL else ""
        found.append(replace(one, text=one.text + hint))
    return found


def llm_endpoints(around: Surroundings) -> list[Finding]:
    """Each configured endpoint answers, or is off on purpose."""
    settings = around.parts.settings
    endpoints = settings.llm_endpoints
    if not endpoints:
        why = "language-model work is off (LLM_ENABLED=false)" if not settings.llm_enabled else "none is configured"
        return [Finding("llm endpoint", Severity.OFF, why)]
    probes = run(_probe_all(endpoints, settings))
    return [
        finding(f"llm endpoint {endpoint.name}", Side.LANGUAGE_MODEL, probe, around.view)
        for endpoint, probe in zip(endpoints, probes, strict=True)
    ]


async def _probe_all(endpoints: tuple[LlmEndpoint, ...], settings: Settings) -> list[Probe]:
    return await asyncio.gather(*(_probe(endpoint, settings) for endpoint in endpoints))


async def _probe(endpoint: LlmEndpoint, settings: Settings) -> Probe:
    """Ask for the model list: it costs nothing. Whether a completion works is what the tick asks."""
    url = api_url(endpoint.base_url, "/models")
    where = shown(endpoint.base_url)
    try:
        answer = await answer_to(Ask("GET", url, TOTAL, _LIST_BYTES, headers=auth_headers(settings)))
    except NotListeningError as error:
        return Probe(
            ready=False, looks_stopped=True, detail=f"{where}: {clean(str(error))}{_container_hint(url, settings)}"
        )
    except ExchangeError as error:
        return Probe(ready=False, looks_stopped=False, detail=f"{where}: {clean(str(error))}")
    problem = list_problem(answer)
    if problem is not None:
        return Probe(ready=False, looks_stopped=False, detail=f"{where} {clean(problem)}")
    return Probe(ready=True, looks_stopped=False, detail=f"{where} answers")


def sharing(around: Surroundings) -> list[Finding]:
    """The phase in plain words."""
    if around.view is None:
        if not around.parts.settings.gpu_phase_enabled:
            return [Finding("gpu sharing", Severity.OFF, "GPU sharing is off")]
        return [Finding("gpu sharing", Severity.FAIL, "the phase cannot be read: the database is away")]
    severity, text = sharing_line(around.view, None)
    return [Finding("gpu sharing", Severity(severity), text)]


def broker(around: Surroundings) -> list[Finding]:
    """The broker answers its status call as the contract says. With sharing off it is not called."""
    settings, view = around.parts.settings, around.view
    if not settings.gpu_phase_enabled:
        return [Finding("broker", Severity.OFF, "not called: GPU sharing is off")]
    if view is None:
        return [Finding("broker", Severity.WARN, "not called: its answer's times need the database's clock")]
    url = settings.gpu_lease_status_url or ""
    status = around.parts.broker.status(view.now)
    return [*_of_status(status, around, url), *_clock(around.parts.broker)]


def _clock(broker: Broker) -> list[Finding]:
    """A broker whose clock is far from ours ends leases at other moments than it says."""
    difference = broker.clock_difference if isinstance(broker, LeaseClient) else None
    if difference is None or abs(difference) < CLOCK_APART:
        return []
    way = "ahead of" if difference > timedelta(0) else "behind"
    text = f"the broker's clock is {span(abs(difference))} {way} the database's: set both by a time server"
    return [Finding("broker clock", Severity.WARN, text)]


def _of_status(status: StatusOutcome, around: Surroundings, url: str) -> list[Finding]:
    settings, view = around.parts.settings, around.view
    phase = view.phase if view else None
    match status:
        case Failed(reason):
            return [Finding("broker", Severity.FAIL, f"{clean(reason)}{mend(reason)}{_container_hint(url, settings)}")]
        case Held(holder=holder) if holder != HOLDER:
            severity = Severity.WARN if phase is Phase.LLM else Severity.FAIL
            return [Finding("broker", severity, f"{shown(url)} answers: {held_by_another(holder)}")]
        case Held():
            return [Finding("broker", *_ours(phase, shown(url)))]
        case _:
            return [Finding("broker", *_free(phase, shown(url)))]


def _ours(phase: Phase | None, where: str) -> tuple[Severity, str]:
    if phase in {None, Phase.LLM}:
        return Severity.WARN, f"{where} answers: it still holds a lease of Voxint's; the next tick gives it back"
    return Severity.OK, f"{where} answers: Voxint holds the GPU"


def _free(phase: Phase | None, where: str) -> tuple[Severity, str]:
    if phase in {Phase.STARTING_SERVICES, Phase.AUDIO, Phase.DRAINING}:
        return Severity.WARN, f"{where} answers: the GPU is free, although Voxint works on it; the lease may be lost"
    return Severity.OK, f"{where} answers: the GPU is free"


def shown(url: str) -> str:
    """An address without user, password and query."""
    parts = urlsplit(url)
    host = parts.hostname or "?"
    host = f"[{host}]" if ":" in host else host
    port = f":{parts.port}" if parts.port else ""
    return clean(f"{parts.scheme}://{host}{port}{parts.path}")


def _container_hint(url: str, settings: Settings) -> str:
    """Inside a container of the stack 127.0.0.1 is the container itself. Standalone has everything in one place."""
    if settings.service_control == "process" or urlsplit(url).hostname not in _LOOPBACK:
        return ""
    if any(mark.exists() for mark in CONTAINER_MARKS):
        return (
            ". This is a container, and that address is the container itself: use host.docker.internal, and let the"
            " other side listen on the Docker bridge's address too"
        )
    return ""
