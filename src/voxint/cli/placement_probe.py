"""`voxint placement probe`: times one request to a service and compares it with this GPU's own speed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voxint.cli.environment import parts
from voxint.cli.output import CouldNotError, note, say, say_json

if TYPE_CHECKING:
    from voxint.gpu_phase.view import PhaseView
    from voxint.services.placement.judge import Judgement
    from voxint.services.placement.probe import Measured
    from voxint.settings import ServiceSettings, Settings
    from voxint.wiring import Parts

Service = Annotated[str, typer.Argument(help="The service, as GPU_PHASE_SERVICES names it.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_SAMPLE = Path("examples") / "speech" / "garden.ogg"
_STYLES = {"ok": "ok", "wrong": "fail", "slow": "warn"}


def probe(
    service: Service,
    *,
    audio: Annotated[Path | None, typer.Option(help="Speech for a service that listens. By default a sample.")] = None,
    keep: Annotated[bool, typer.Option("--keep-baseline", help="Keep the speed as this GPU's own.")] = False,
    as_json: Json = False,
) -> None:
    """Time a known request, after one that warms the service up, and compare it with this GPU's own speed.

    Only in the audio phase, and only while no recording is at work.
    """
    from voxint.services.exchange import ExchangeError  # noqa: PLC0415
    from voxint.services.model_call import ServiceError  # noqa: PLC0415

    with parts() as made:
        asked = known(made.settings, service)
        _refuse_while_busy(made)
        try:
            measured = _measured(asked, audio)
        except (ExchangeError, ServiceError) as error:
            raise CouldNotError(f"could not probe {service}: {error}") from error
        _report(made, service, measured, keep=keep, as_json=as_json)


def _refuse_while_busy(made: Parts) -> None:
    from voxint.services.placement.probe import refusal  # noqa: PLC0415

    why_not = refusal(_phase(made))
    if why_not is not None:
        raise CouldNotError(f"no probe now: {why_not}")


def _phase(made: Parts) -> PhaseView:
    from voxint.gpu_phase.status import look  # noqa: PLC0415

    return look(made.phase_store, made.settings)


def _measured(service: ServiceSettings, audio: Path | None) -> Measured:
    import tempfile  # noqa: PLC0415

    from voxint.services.placement.probe import measure, understands  # noqa: PLC0415

    if understands(service) in {"speech", None}:
        return measure(service, None)
    with tempfile.TemporaryDirectory(prefix="voxint-probe-") as folder:
        return measure(service, _as_wav(audio or _sample(), Path(folder) / "speech.wav"))


def _sample() -> Path:
    import voxint  # noqa: PLC0415

    for root in (Path.cwd(), Path(voxint.__file__).parents[2]):
        if (root / _SAMPLE).is_file():
            return root / _SAMPLE
    raise CouldNotError(f"there is no {_SAMPLE} here: name a recording of speech with --audio")


def _as_wav(source: Path, to: Path) -> Path:
    import threading  # noqa: PLC0415

    from voxint.recordings.media import probe as media  # noqa: PLC0415
    from voxint.recordings.media.facts import MediaError  # noqa: PLC0415

    try:
        media.decode(source, to, lost=threading.Event(), tell=lambda _facts, _at: None)
    except (MediaError, media.DecoderStopped, OSError) as error:
        raise CouldNotError(f"cannot use {source}: {error}") from error
    return to


def _report(made: Parts, service: str, measured: Measured, *, keep: bool, as_json: bool) -> None:
    from voxint.services.placement.expectations import expectations  # noqa: PLC0415
    from voxint.services.placement.probe import compared, refusal  # noqa: PLC0415

    busy = refusal(_phase(made))
    kept = made.placement_store.baselines().get(service)
    expected = expectations(made.settings.compute_tier, made.settings.services, made.settings.placement_expected)
    found = compared(service, expected[service], measured, kept.rate if kept else None, tells=busy is None)
    keeps = _keep(made, service, measured, keep=keep, first=kept is None, busy=busy)
    if as_json:
        say_json(
            {
                "service": service,
                "amount": measured.amount,
                "unit": measured.unit,
                "seconds": round(measured.seconds, 3),
                "warm_up_seconds": round(measured.warm_up_seconds, 3),
                "rate": round(measured.rate, 2),
                "baseline": kept.rate if kept else None,
                "verdict": found.verdict.value,
                "kept_as_baseline": keeps,
            }
        )
        return
    _say_probe(service, measured, found, busy)
    if kept is not None:
        note(f"This GPU's own speed, kept on {kept.made_at:%Y-%m-%d}: {kept.rate:,.1f} {kept.unit}/s.")
    if keeps:
        note("Kept as this GPU's own speed, for later probes to be compared with.")


def _say_probe(service: str, measured: Measured, found: Judgement, busy: str | None) -> None:
    from voxint.services.placement.judge import Verdict  # noqa: PLC0415
    from voxint.services.placement.probe import TEXT, USUAL_ELSEWHERE  # noqa: PLC0415

    say(
        f"{service}: {measured.amount:,.0f} {measured.unit} in {measured.seconds:.2f} s, {measured.rate:,.1f}/s "
        f"(the request before, which warms up, took {measured.warm_up_seconds:.2f} s): {found.verdict.value}",
        _STYLES.get(found.verdict.value, ""),
    )
    if busy is not None:
        note(f"The time tells nothing: meanwhile {busy}.", "warn")
    elif found.verdict is Verdict.UNKNOWN:
        note(
            "There is no speed of this GPU to compare it with: once you know that it works on the GPU, --keep-baseline."
        )
        if measured.amount == len(TEXT):
            note(f"For such a text {USUAL_ELSEWHERE}.")


def _keep(made: Parts, service: str, measured: Measured, *, keep: bool, first: bool, busy: str | None) -> bool:
    """Keep the speed: where it was asked for, or where it is the first and the device is known to be right."""
    from voxint.services.placement.judge import Evidence, Verdict  # noqa: PLC0415
    from voxint.services.placement.view import rows  # noqa: PLC0415

    if busy is not None or not (keep or first):
        return False
    now = {row.service: row for row in rows(made.settings, {}, made.placement_sources)}[service]
    if now.verdict is Verdict.WRONG:
        if keep:
            raise CouldNotError(f"not kept: {service} runs on {now.device}, expected {now.expected}: {now.why}")
        return False
    sure = now.verdict is Verdict.OK and now.evidence in {Evidence.DEVICE, Evidence.MEMORY}
    if keep or sure:
        made.placement_store.keep_baseline(service, measured.rate, measured.unit)
        return True
    return False


def known(chosen: Settings, service: str) -> ServiceSettings:
    """The settings of a service.

    Raises:
        BadParameter: there is none of that name.
    """
    if service not in chosen.services:
        raise typer.BadParameter(f"{service!r} is not one of GPU_PHASE_SERVICES ({', '.join(chosen.services)})")
    return chosen.services[service]
