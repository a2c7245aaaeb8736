"""The live view of a demo: who has the GPU, and how far each recording is. On a terminal it redraws; else it is lines."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from voxint.gpu_phase.wording.phases import PHASE_WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from voxint.gpu_phase.model import Phase
    from voxint.recordings.run import Run

STAGE_WORDS = {
    "acquire": "is taken in",
    "prepare": "is decoded",
    "transcribe": "is transcribed",
    "diarize_embed": "voices are told apart",
    "enhance_match": "the language model reads it",
    "finalize": "the transcript is written",
}
_POST = {"enhance_match", "finalize"}
_STEP = 25  # per cent between two lines of one stage


@dataclass(frozen=True, slots=True)
class Picture:
    """What there is to see at a moment."""

    phase: Phase | None
    phase_seconds: float
    runs: Sequence[tuple[str, Run]]
    """Names and recordings."""


def screen() -> Console:
    """Standard output: nothing in it is read as markup, and its lines are not cut."""
    return Console(markup=False, highlight=False, emoji=False, soft_wrap=True)


def printable(text: object) -> str:
    """A text in one line, without what a terminal would obey."""
    return "".join(character if character.isprintable() else " " for character in str(text))


def words(run: Run) -> str:
    """What happens to a recording now."""
    if run.status == "queued":
        return "waits for the language model" if run.stage in _POST else "waits for the GPU"
    if run.status == "running":
        return STAGE_WORDS.get(run.stage, run.stage)
    if run.status == "failed":
        return f"failed: {printable(run.error)}"
    return run.status


class View:
    """Shows pictures. `began` is when the demo began, on the monotonic clock."""

    def __init__(self, console: Console, began: float) -> None:
        self._console = console
        self._began = began
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._phase: Phase | None = None
        self._shown: dict[str, tuple[str, int]] = {}

    def __enter__(self) -> Self:
        """Begin."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End; the last picture stays on the screen."""
        if self._live is not None:
            self._live.stop()

    def show(self, picture: Picture) -> None:
        """Show what has changed."""
        if self._live is not None:
            self._live.update(self._drawn(picture), refresh=True)
            return
        if picture.phase is not None and picture.phase is not self._phase:
            self._phase = picture.phase
            self._line(f"GPU: {PHASE_WORDS[picture.phase]}")
        for name, run in picture.runs:
            share = int(100 * (run.progress or 0)) // _STEP * _STEP
            if self._shown.get(name) != (words(run), share):
                self._shown[name] = (words(run), share)
                self._line(f"{name}: {words(run)}" + (f", {share} %" if share else ""))

    def _line(self, text: str) -> None:
        self._console.print(f"[{time.monotonic() - self._began:6.1f} s] {printable(text)}")

    def _drawn(self, picture: Picture) -> Group:
        head = "GPU: nobody has said yet" if picture.phase is None else f"GPU: {PHASE_WORDS[picture.phase]}"
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for name, run in picture.runs:
            share = "" if run.progress is None else f"{100 * run.progress:3.0f} %"
            table.add_row(Text(printable(name), "bold"), Text(words(run), _style(run.status)), Text(share))
        elapsed = f"{time.monotonic() - self._began:.0f} s; this phase {picture.phase_seconds:.0f} s"
        return Group(Text(head, "bold cyan"), table, Text(elapsed, "dim"))


def _style(status: str) -> str:
    return {"done": "green", "failed": "bold red", "running": "yellow"}.get(status, "dim")
