"""Following the phase from the command line: `status --watch`, and `--wait` after a request."""

from __future__ import annotations

from threading import Event as Bell
from time import monotonic
from typing import TYPE_CHECKING

from voxint.cli.output import CouldNotError, console, note, plain, say
from voxint.gpu_phase.model import Cause, Phase, RequestKind, RequestOutcome
from voxint.gpu_phase.reasons import clean
from voxint.gpu_phase.status import look
from voxint.gpu_phase.wording import figures, notices, phases

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from voxint.gpu_phase.model import Request
    from voxint.gpu_phase.store import Event
    from voxint.gpu_phase.view import PhaseView
    from voxint.wiring import Parts

EVERY_SECONDS = 1.0
_LOOK_SECONDS = 0.5


def watch_status(made: Parts) -> None:
    """Redraw the status until Ctrl-C. On something that is no terminal each picture follows the last."""
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    never = Bell()
    if not console().is_terminal:
        while True:
            for line in [*picture(look(made.phase_store, made.settings)).splitlines(), ""]:
                say(line)
            never.wait(EVERY_SECONDS)
    with Live(console=console(), auto_refresh=False, transient=False) as live:
        while True:
            live.update(Text(picture(look(made.phase_store, made.settings))), refresh=True)
            never.wait(EVERY_SECONDS)


def picture(view: PhaseView) -> str:
    """One look at the status as lines of text."""
    pairs = phases.status_lines(view, None)
    width = max(len(label) for label, _ in pairs) + 2
    lines = [f"{figures.moment(view.now, None)}   {'' if view.enabled else phases.OFF}".rstrip(), ""]
    lines += [f"{label + ':':<{width}}{plain(value)}" for label, value in pairs]
    for notice in notices.notices(view, None):
        lines += ["", plain(notice.text)]
    return "\n".join(lines)


def follow_request(made: Parts, request: Request, limit: timedelta) -> None:
    """Wait until what was asked for is so, and tell each phase on the way on stderr.

    Raises:
        CouldNotError: it did not come about, another request took its place, or the limit passed.
    """
    end = monotonic() + limit.total_seconds()
    bell = Bell()
    shown: Phase | None = None
    while True:
        outcome = made.phase_store.request_outcome(request.id)
        view = look(made.phase_store, made.settings)
        if view.state is not None and view.phase is not shown:
            shown = view.phase
            note(
                f"{figures.clock(view.now, view.now, None)}  {view.phase_name}: {phases.PHASE_WORDS[view.state.phase]}"
            )
        if arrived(request.kind, view, outcome, made.phase_store.events(request.requested_at)):
            say(f"Done: {phases.phase_words(view)}.")
            return
        if monotonic() >= end:
            waits = f": {clean(view.state.note)}" if view.state is not None and view.state.note else ""
            raise CouldNotError(f"not done within {figures.span(limit)}; the phase is {view.phase_name}{waits}")
        bell.wait(_LOOK_SECONDS)


def arrived(kind: RequestKind, view: PhaseView, outcome: RequestOutcome | None, since: Sequence[Event]) -> bool:
    """Whether what was asked for is so now, or was so since.

    Args:
        kind: what was asked for.
        view: how things stand.
        outcome: what became of the request; None while it is pending.
        since: the changes of phase since it was recorded, oldest first.

    Raises:
        CouldNotError: it cannot come about any more by this request.
    """
    if outcome is RequestOutcome.SUPERSEDED:
        raise CouldNotError("a newer request took its place")
    if outcome is None or view.state is None:
        return False
    if kind is RequestKind.RELEASE:
        if view.phase is Phase.ERROR and any(event.to_phase is Phase.ERROR for event in since):
            raise CouldNotError(phases.error_words(view, None))
        return view.phase is Phase.LLM
    acted = max((number for number, event in enumerate(since) if event.cause is Cause.AUDIO_NOW), default=0)
    passed = {event.to_phase for event in since[acted:]}
    if view.phase is Phase.AUDIO or Phase.AUDIO in passed or Phase.DRAINING in passed:
        return True
    if passed & {Phase.LLM, Phase.ERROR}:
        why = clean(view.state.last_error) if view.state.last_error else "it was called off"
        raise CouldNotError(f"the switch to audio did not come about: {why}")
    return False
