import io
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from voxint.gpu_phase.model import Phase
from voxint.recordings.run import Run
from voxint.recordings.stages.order import STAGE_ORDER
from voxint.standalone.demo.view import Picture, View, printable, words


def run(status="queued", stage="acquire", **more):
    return Run(1, "t", "s", "file", status, stage, Path("/f"), datetime(2026, 1, 1, tzinfo=UTC), **more)


def shown(pictures, *, terminal):
    out = io.StringIO()
    console = Console(
        file=out, force_terminal=terminal, width=100, markup=False, highlight=False, emoji=False, soft_wrap=True
    )
    view = View(console, time.monotonic())
    with view:
        for picture in pictures:
            view.show(picture)
    return out.getvalue()


DAY = [
    Picture(None, 0, [("a", run())]),
    Picture(Phase.LLM, 1, [("a", run())]),
    Picture(Phase.LLM, 2, [("a", run())]),
    Picture(Phase.AUDIO, 1, [("a", run("running", "transcribe", progress=0.3))]),
    Picture(Phase.AUDIO, 2, [("a", run("running", "transcribe", progress=0.4))]),
    Picture(Phase.AUDIO, 3, [("a", run("queued", "enhance_match"))]),
    Picture(Phase.LLM, 1, [("a", run("done", "finalize"))]),
]


def test_without_a_terminal_each_change_is_one_plain_line():
    lines = [line.split("] ", 1)[1] for line in shown(DAY, terminal=False).splitlines()]
    assert lines == [
        "a: waits for the GPU",
        "GPU: the language model has the GPU",
        "GPU: Voxint has the GPU; recordings are worked on",
        "a: is transcribed, 25 %",
        "a: waits for the language model",
        "GPU: the language model has the GPU",
        "a: done",
    ]


def test_a_terminal_is_drawn_anew_and_ends_with_the_last_picture():
    text = shown(DAY, terminal=True)
    assert "\x1b[" in text
    assert "done" in text.rsplit("\x1b[2K", 1)[1]


@pytest.mark.parametrize("terminal", [True, False])
def test_names_are_no_markup_and_no_orders(terminal):
    text = shown([Picture(Phase.LLM, 0, [("[/red] [slug]\x1b[31m", run())])], terminal=terminal)
    assert "[/red] [slug] [31m" in text


def test_a_failed_one_says_why_in_one_line():
    assert words(run("failed", error="no\naudio\x07")) == "failed: no audio "
    assert printable("a\x1bb") == "a b"


STAGES = [
    ("acquire", "is taken in", "waits for the GPU"),
    ("prepare", "is decoded", "waits for the GPU"),
    ("transcribe", "is transcribed", "waits for the GPU"),
    ("diarize_embed", "voices are told apart", "waits for the GPU"),
    ("enhance_match", "the language model reads it", "waits for the language model"),
    ("finalize", "the transcript is written", "waits for the language model"),
]


def test_these_are_the_stages():
    assert [stage for stage, *_ in STAGES] == [name for name, _ in STAGE_ORDER]


@pytest.mark.parametrize(("stage", "working", "waiting"), STAGES)
def test_each_stage_is_told_while_it_runs_and_while_it_waits(stage, working, waiting):
    assert words(run("running", stage)) == working
    assert words(run("queued", stage)) == waiting
    for terminal in (True, False):
        text = shown([Picture(Phase.AUDIO, 1, [("a", run("running", stage, progress=0.5))])], terminal=terminal)
        assert working in text
        assert "50 %" in text


def test_a_recording_s_way_is_a_line_a_stage():
    way = [("acquire", "queued"), *((stage, "running") for stage, *_ in STAGES), ("finalize", "done")]
    pictures = [Picture(Phase.AUDIO, 1, [("a", run(status, stage))]) for stage, status in way for _ in range(3)]
    lines = [line.split("] ", 1)[1] for line in shown(pictures, terminal=False).splitlines()]
    told = [working for _, working, _ in STAGES]
    assert lines[1:] == [f"a: {text}" for text in ["waits for the GPU", *told, "done"]]


def test_a_quarter_of_a_stage_is_a_line_and_less_is_none():
    pictures = [Picture(None, 0, [("a", run("running", "transcribe", progress=n / 100))]) for n in range(101)]
    lines = [line.split("] ", 1)[1] for line in shown(pictures, terminal=False).splitlines()]
    assert lines == ["a: is transcribed", *(f"a: is transcribed, {share} %" for share in (25, 50, 75, 100))]
