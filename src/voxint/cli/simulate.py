"""`voxint gpu-phase simulate`: what other settings would have meant for the recordings that really came."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from voxint.cli import spans
from voxint.cli.environment import parts
from voxint.cli.output import CouldNotError, note, say_json, say_table

if TYPE_CHECKING:
    from voxint.gpu_phase.past import Past
    from voxint.gpu_phase.policy import Policy
    from voxint.gpu_phase.simulate import Outcome

_DWELLS = (timedelta(minutes=2), timedelta(minutes=10), timedelta(minutes=30), timedelta(hours=1))
HEADS = ("min dwell", "max audio", "turns", "llm away", "GPU unused", "heard p50", "heard p95", "done p95", "left")


def simulate(
    *,
    since: Annotated[str, typer.Option(help="How far to look back.")] = "7d",
    min_dwell: Annotated[str, typer.Option(help="One min dwell to try; by default some, and yours.")] = "",
    max_audio: Annotated[str, typer.Option(help="The longest audio phase to try; by default yours.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Replay the past with other settings: waits, the language model's time away, the GPU's unused time. Changes nothing."""
    from voxint.gpu_phase.past import past  # noqa: PLC0415
    from voxint.gpu_phase.simulate import Simulation, least_away  # noqa: PLC0415

    length = spans.parse(since)
    with parts() as made:
        policy = replace(made.settings.policy, enabled=True)
        if max_audio:
            policy = replace(policy, max_audio=spans.parse(max_audio))
        now = made.phase_store.now()
        what = past(made.engine, now - length, now)
        follow_up = timedelta(seconds=made.settings.gpu_phase_follow_up_seconds)
    if not what.arrivals:
        raise CouldNotError(
            f"No recording was finished within {since}: there is nothing to replay. Try a longer --since."
        )
    found = [
        (each, Simulation(each, what.world, follow_up, what.since).run(what.arrivals, length))
        for each in _policies(policy, min_dwell)
    ]
    if as_json:
        say_json([_document(each, outcome) for each, outcome in found])
        return
    _say_world(what)
    say_table(HEADS, [_row(each, outcome) for each, outcome in found])
    bound = least_away(what.arrivals, what.world) / length
    note(f"All in a single turn, the language model would have been away for {bound:.1%}.")


def _policies(policy: Policy, min_dwell: str) -> list[Policy]:
    dwells = {spans.parse(min_dwell)} if min_dwell else {*_DWELLS, policy.min_dwell}
    return [replace(policy, min_dwell=dwell, max_audio=max(dwell, policy.max_audio)) for dwell in sorted(dwells)]


def _say_world(what: Past) -> None:
    from voxint.gpu_phase.wording.figures import span  # noqa: PLC0415

    note(f"{len(what.arrivals)} finished recordings. A change of hands:")
    names = {"llm_stop": "language model stops", "services_start": "services start"}
    names |= {"services_stop": "services stop", "llm_start": "language model comes back"}
    for name, words in names.items():
        known = "" if name in what.measured else " (assumed: the history has none)"
        note(f"  {words}: {span(getattr(what.world, name))}{known}")


def _row(policy: Policy, outcome: Outcome) -> tuple[str, ...]:
    from voxint.gpu_phase.simulate import quantile  # noqa: PLC0415
    from voxint.gpu_phase.wording.figures import span  # noqa: PLC0415

    waits = (quantile(outcome.heard, 0.5), quantile(outcome.heard, 0.95), quantile(outcome.done, 0.95))
    return (
        span(policy.min_dwell),
        span(policy.max_audio),
        str(outcome.turns),
        f"{outcome.share(outcome.llm_away):.1%}",
        f"{outcome.share(outcome.unused):.1%}",
        *(span(wait) if wait is not None else "-" for wait in waits),
        str(outcome.unfinished),
    )


def _document(policy: Policy, outcome: Outcome) -> dict[str, object]:
    from voxint.gpu_phase.simulate import quantile  # noqa: PLC0415

    def seconds(wait: timedelta | None) -> float | None:
        return None if wait is None else wait.total_seconds()

    return {
        "min_dwell_seconds": policy.min_dwell.total_seconds(),
        "max_audio_seconds": policy.max_audio.total_seconds(),
        "turns": outcome.turns,
        "llm_away_share": round(outcome.share(outcome.llm_away), 4),
        "unused_share": round(outcome.share(outcome.unused), 4),
        "heard_p50_seconds": seconds(quantile(outcome.heard, 0.5)),
        "heard_p95_seconds": seconds(quantile(outcome.heard, 0.95)),
        "done_p95_seconds": seconds(quantile(outcome.done, 0.95)),
        "unfinished": outcome.unfinished,
    }
