"""`voxint gpu-phase`: who has the GPU, what happens next, and asking for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from voxint.cli import spans
from voxint.cli.environment import operator, parts, settings
from voxint.cli.output import CouldNotError, note, say, say_json, say_pairs, say_table
from voxint.cli.simulate import simulate

if TYPE_CHECKING:
    from datetime import timedelta

    from voxint.gpu_phase.view import PhaseView
    from voxint.settings import Settings
    from voxint.wiring import Parts

app = typer.Typer(help="Who has the GPU now, and asking for it.", no_args_is_help=True)
app.command()(simulate)

DEFAULT_LIMIT = "15m"
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Wait = Annotated[bool, typer.Option("--wait", help="Follow until it is done.")]
Limit = Annotated[str, typer.Option("--limit", help="With --wait: give up after this long.")]


@app.command()
def status(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Redraw it until Ctrl-C.")] = False,
) -> None:
    """Where things stand: phase, lease, last error, and what waits for and runs on each lane."""
    if as_json and watch:
        raise typer.BadParameter("--json and --watch exclude each other")
    if watch:
        from voxint.cli.follow import watch_status  # noqa: PLC0415

        with parts() as made:
            watch_status(made)
        return
    view = _look_once(settings())
    if as_json:
        from voxint.gpu_phase.view import document  # noqa: PLC0415

        say_json(document(view))
        return
    _print(view)


def _print(view: PhaseView) -> None:
    from voxint.gpu_phase.wording import notices, phases  # noqa: PLC0415

    if not view.enabled:
        say(f"{phases.OFF}: both lanes are open, and Voxint starts and stops nothing.")
    if view.enabled or view.leftover:
        say_pairs(phases.status_lines(view, None))
    for notice in notices.notices(view, None):
        note(notice.text, "warn")


@app.command()
def audio_now(*, wait: Wait = False, limit: Limit = DEFAULT_LIMIT) -> None:
    """Switch to audio work now, skipping min dwell, backoff and hold."""
    _ask("audio-now", spans.parse(limit) if wait else None)


@app.command()
def release(*, wait: Wait = False, limit: Limit = DEFAULT_LIMIT) -> None:
    """Hand the GPU back now, or try it again after an error."""
    _ask("release", spans.parse(limit) if wait else None)


def _ask(name: str, limit: timedelta | None) -> None:
    from voxint.gpu_phase.model import RequestKind  # noqa: PLC0415
    from voxint.gpu_phase.wording.requests import next_step  # noqa: PLC0415

    kind = RequestKind(name)
    with parts() as made:
        _refuse_when_off(made)
        before = _look(made)
        request = made.phase_store.record_request(kind, operator())
        woken = made.publisher.wake_phase()
        for line in next_step(kind, before, None, woken=woken):
            say(line)
        if limit is not None:
            from voxint.cli.follow import follow_request  # noqa: PLC0415

            follow_request(made, request, limit)


@app.command()
def hold(*, length: Annotated[str, typer.Option("--for", help="How long, as 90s, 30m, 2h, 1d.")]) -> None:
    """Let no switch to audio begin by itself for a while. audio-now overrides it."""
    from voxint.gpu_phase.wording.requests import hold_words  # noqa: PLC0415

    kept_off = spans.parse(length)
    with parts() as made:
        _refuse_when_off(made)
        made.phase_store.set_hold(made.phase_store.now() + kept_off, operator())
        say(hold_words(_look(made), None))


@app.command()
def resume() -> None:
    """Take a hold back."""
    from voxint.gpu_phase.wording.requests import resumed_words  # noqa: PLC0415

    with parts() as made:
        _refuse_when_off(made)
        was_held = _look(made).held
        made.phase_store.set_hold(None, operator())
        made.publisher.wake_phase()
        say(resumed_words(_look(made), was_held=was_held))


@app.command()
def history(
    *,
    since: Annotated[str, typer.Option("--since", help="How far back, as 30m, 24h, 7d.")] = "24h",
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many, the newest.")] = 1000,
    as_json: Json = False,
) -> None:
    """The changes of phase, how long each phase took, and why it ended."""
    from voxint.gpu_phase.wording import history as words  # noqa: PLC0415

    back = spans.parse(since)
    with parts() as made:
        events = made.phase_store.events(made.phase_store.now() - back, limit)
    if as_json:
        say_json([words.record(event) for event in events])
    elif not events:
        say("No phase has changed in that time.")
    else:
        say_table(words.HEADS, [words.row(event, None) for event in events])


def _look_once(chosen: Settings) -> PhaseView:
    """The view without the parts: importing those takes longer than all the rest of this command."""
    from voxint.db.plain import reader, understood  # noqa: PLC0415
    from voxint.gpu_phase.status import read  # noqa: PLC0415

    url = chosen.database_url.get_secret_value()
    if not understood(url):
        with parts() as made:
            return _look(made)
    with reader(url) as rows:
        return read(rows, chosen.policy)


def _look(made: Parts) -> PhaseView:
    from voxint.gpu_phase.status import look  # noqa: PLC0415

    return look(made.phase_store, made.settings)


def _refuse_when_off(made: Parts) -> None:
    from voxint.gpu_phase.wording.requests import off_words  # noqa: PLC0415

    if not made.settings.gpu_phase_enabled:
        raise CouldNotError(off_words(_look(made)))
