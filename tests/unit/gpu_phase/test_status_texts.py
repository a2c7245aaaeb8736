"""The lines of `gpu-phase status` as texts: each phase, with 0, 1 and 3 recordings."""

from __future__ import annotations

from datetime import UTC

import pytest
from phase_views import answered, view_of

from voxint.gpu_phase.model import Phase
from voxint.gpu_phase.wording import phases

LEASE = "2026-11-30 12:09:00 UTC (in 9 min)"
DWELL = "2026-11-30 12:05:00 UTC (in 5 min): the end of min dwell"
STATUS = {
    # phase: its line, the lease's end, the next try, whether the GPU lane is open
    None: ("none - no phase recorded yet", "-", "-", False),
    "llm": ("llm - the language model has the GPU", "-", DWELL, False),
    "draining_post": (
        "draining_post - the language model has the GPU; its work in progress finishes, then the GPU goes to audio",
        "-",
        "-",
        False,
    ),
    "acquiring": ("acquiring - the GPU is being handed over: the broker stops the language model", "-", "-", False),
    "starting_services": (
        "starting_services - Voxint has the GPU; the model services are starting",
        LEASE,
        "-",
        False,
    ),
    "audio": ("audio - Voxint has the GPU; recordings are worked on", LEASE, "-", True),
    "draining": (
        "draining - Voxint has the GPU; recordings in progress finish, then the GPU goes back",
        LEASE,
        "-",
        False,
    ),
    "stopping_services": ("stopping_services - Voxint has the GPU; the model services are stopping", LEASE, "-", False),
    "releasing": (
        "releasing - the GPU is being handed back: the broker starts the language model",
        LEASE,
        "-",
        False,
    ),
    "error": (
        "error - the GPU could not be handed back; nobody can work on it",
        "-",
        "at the next tick: the wait after a failure has passed",
        False,
    ),
}


@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize("name", STATUS)
def test_status_in_each_phase(name, number):
    words, lease, next_try, opened = STATUS[name]
    view = view_of(Phase(name) if name else None, gpu=(number, 0), post=(number, 2))
    assert phases.status_lines(view, UTC) == [
        ("phase", words),
        ("since", "2026-11-30 11:55:00 UTC (5 min ago)" if name else "-"),
        ("last tick", "2026-11-30 11:59:50 UTC (10 s ago)" if name else "-"),
        ("lease expires", lease),
        ("last error", "-"),
        ("failures", "0"),
        ("next try", next_try),
        ("request", "none"),
        ("gpu lane", f"{'open' if opened else 'closed'}; {number} waiting, 0 running"),
        ("post lane", f"closed; {number} waiting, 2 running"),
    ]


def test_every_phase_is_in_the_table():
    assert set(STATUS) == {None, *(phase.value for phase in Phase)}


def test_with_a_fresh_answer_of_the_language_model_its_lane_is_open():
    lines = dict(phases.status_lines(view_of(Phase.LLM, state=answered(), post=(3, 1)), UTC))
    assert lines["post lane"] == "open; 3 waiting, 1 running"
