"""Writes docs/reference/phases.md from the code that it tells of: edges, calls, lanes, words, and the walk's world.

`--check` compares instead, and fails where the page is out of date.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "support")]

import phase_rules  # noqa: E402 - stands in tests/support

from voxint.gpu_phase import lanes, plan  # noqa: E402
from voxint.gpu_phase.model import EDGES, Lane, Phase, PhaseState, Request, RequestKind  # noqa: E402
from voxint.gpu_phase.policy import Policy  # noqa: E402
from voxint.gpu_phase.wording.phases import CAUSE_WORDS, PHASE_WORDS  # noqa: E402
from walk.guards import GUARDS  # noqa: E402 - stands in tests
from walk.world import ANSWERS, EVENTS, POLICY, UNIT, VARIABLES  # noqa: E402 - stands in tests

PAGE = ROOT / "docs" / "reference" / "phases.md"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
INTRO = """# The phases of the GPU

This page is made from the code by `make docs`; a test compares. One row in the table `gpu_phase` says who has the GPU.
A tick reads it, makes the calls that the phase picks, decides, and moves the phase by at most one step. Without a row
(`none`) both lanes wait; the first tick writes it, in `llm`.
"""
LANE_WORDS = """
*open*: work may begin. *goes on*: what has begun its segment finishes it, nothing begins. *waits*: work stays queued.
The GPU lane also needs a lease that is not lost and not past its end; the post lane also needs an answer of the
language model that is not older than three ticks, or 90 s where that is longer. With GPU sharing off, both are open.
"""
CALL_WORDS = """
The stored phase and its lease pick the calls, so a crash before the save repeats a call that is safe to repeat. What
an earlier call of the same tick saw may only take a later one away: the broker is asked to change hands only where
every model service was seen stopped, and nothing is started or asked for its health without this tick's renewal.
A pending `release` takes away what the right-hand column does not name.
"""
REQUEST_WORDS = """
## Requests

The newest pending request counts; an older one is marked as superseded. A request ends by the step that it causes
(*acted*), or where what it asks for is so already (*met*). One that is recorded while a tick is at work survives it.

| seen in | `release` | `audio-now` |
| --- | --- | --- |
| `llm` | no switch for min dwell; *met* where it was made on the way there or back | a switch begins, without dwell, backoff or hold; not while something that must be known cannot be asked |
| `draining_post` | back to `llm`, with the same hold-off | *met* where the way goes on |
| `acquiring` | to `releasing`, without a call | *met* where the way goes on |
| `starting_services` | to `stopping_services` | *met* where the way goes on |
| `audio` | to `draining` | *met* |
| `draining` | made there: the services are stopped at once, running stages go back without using an attempt; made before: *met* | kept for `llm` |
| `stopping_services`, `releasing` | *met* on entering `llm` | kept for `llm` |
| `error` | retries now | kept for `llm` |

## Decided where the rules are silent

- A release that was made anywhere between `acquiring` and `error` is met once `llm` is reached: it does not hold off
  the next switch. Only one made in `llm`, `draining_post`, or without a row does.
- `audio-now` on a way that ends early (a refusal, a service found running, a lost lease) stays pending, and is acted on
  in `llm`.
- A service found running on the way to audio keeps an existing failure count, like one found in `llm`.
- A failed renewal is told as the last error only where the cycle has not failed before: it does not hide the cause.
- In `releasing` a lease that status names is stored at once, also where the services cannot be inspected, so that
  `error` and `stopping_services` renew it.
- Min dwell shorter than a tick can leave the post lane without a turn while recordings keep coming: the tick that finds
  the dwell over begins the switch before it has opened the lane. Keep it longer than a tick and the language model's
  own start.
"""


def diagram() -> str:
    """The steps as a picture."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> llm"]
    for (start, end), causes in EDGES.items():
        words = "<br>".join(sorted(cause.value for cause in causes))
        lines.append(f"    {start.value} --> {end.value}: {words}")
    return "\n".join([*lines, "```"])


def phases() -> str:
    """Who has the GPU, and what each lane does."""
    rows = ["| phase | what happens | GPU lane | post lane | leaves to |", "| --- | --- | --- | --- | --- |"]
    for phase in Phase:
        ends = ", ".join(f"`{end.value}`" for start, end in EDGES if start is phase)
        rows.append(
            f"| `{phase.value}` | {PHASE_WORDS[phase]} | {_lane(Lane.GPU, phase)} | {_lane(Lane.POST, phase)} | {ends} |"
        )
    return "\n".join(rows)


def _lane(lane: Lane, phase: Phase) -> str:
    state = PhaseState(phase, NOON, lease_id="b7c1", llm_ready=True, llm_checked_at=NOON)
    if lanes.is_open(lane, state, NOON, Policy()):
        return "open"
    return "goes on" if lanes.goes_on(lane, state, NOON) else "waits"


def calls() -> str:
    """What a tick asks of the world."""
    rows = [
        "| phase | no lease id known | lease known | lease lost | with `release` pending |",
        "| --- | --- | --- | --- | --- |",
    ]
    release = Request(1, RequestKind.RELEASE, None, NOON)
    needs, never = phase_rules.WITH_LEASE, {Phase.LLM, Phase.DRAINING_POST, Phase.ACQUIRING}
    for phase in Phase:
        bare = PhaseState(phase, NOON)
        known = PhaseState(phase, NOON, lease_id="b7c1")
        lost = PhaseState(phase, NOON, lease_id="b7c1", lease_lost=True)
        usual = bare if phase in never else known
        cells = (
            "" if phase in needs else _calls(plan.plan(bare, None)),
            "" if phase in never else _calls(plan.plan(known, None)),
            "" if phase in never | needs else _calls(plan.plan(lost, None)),
            "the same" if plan.plan(usual, release) == plan.plan(usual, None) else _calls(plan.plan(usual, release)),
        )
        rows.append(f"| `{phase.value}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def _calls(made: tuple[plan.Call, ...]) -> str:
    return ", ".join(call.value for call in made) or "none"


def edges() -> str:
    """Every step and its causes in words."""
    rows = ["| from | to | because |", "| --- | --- | --- |"]
    for (start, end), causes in EDGES.items():
        words = "; ".join(sorted(CAUSE_WORDS[cause] for cause in causes))
        rows.append(f"| `{start.value}` | `{end.value}` | {words} |")
    return "\n".join(rows)


def walk() -> str:
    """The world of the walk, its rules and guards."""
    unit = f"{UNIT.total_seconds():.0f} s"
    limits = {
        "min dwell": POLICY.min_dwell,
        "max audio": POLICY.max_audio,
        "each limit": POLICY.start_limit,
    }
    told = ", ".join(f"{name} {_units(length)}" for name, length in limits.items())
    parts = [
        "## The walk\n",
        (
            "`make walk` puts the machine into a small world and goes through every state that the two can reach together."
            f" Time is counted in units of {unit}: {told}. The product's own plan, decide and lanes are called; the rest is"
            " this world.\n"
        ),
        _table(("variable", "range"), VARIABLES),
        "",
        _table(("call", "what it may bring, at any time"), ANSWERS),
        "",
        _table(("who", "what may happen, at any time"), EVENTS),
        (
            "\nIn every state: both lanes are never open; a service that we started runs only in a phase that has, or stops,"
            " services; GPU-lane work runs only in `audio` and `draining`; post-lane work never runs between `acquiring` and"
            " `draining`. At every call: nothing is started without a lease of ours; the GPU is neither asked for nor handed"
            " back while a service runs; services are not stopped, and the GPU is not given away, under running work; a dead"
            " lease is not renewed. From every state, once the world is well: a lane opens, all queued work is done, every"
            " request ends, no lease of ours is left behind an open post lane; and where no worker is left at all, the post"
            " lane still opens. Every tick also keeps these rules, which hold for drawn numbers and times too:\n"
        ),
        "\n".join(f"- {rule.__name__.replace('_', ' ')}" for rule in phase_rules.RULES),
        (
            f"\nThe walk proves something only if it would see a fault: each of these {len(GUARDS)} guards is switched off in"
            " turn, and a violation must come.\n"
        ),
        _table(("guard", "what it is for"), tuple((f"`{guard.name}`", guard.what) for guard in GUARDS)),
    ]
    return "\n".join(parts)


def _units(length: timedelta) -> str:
    number = length // UNIT
    return f"{number} unit" if number == 1 else f"{number} units"


def _table(heads: tuple[str, str], rows: tuple[tuple[str, str], ...]) -> str:
    lines = [f"| {heads[0]} | {heads[1]} |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {name} | {words} |" for name, words in rows)])


def page() -> str:
    """The whole page."""
    return f"{INTRO}\n{diagram()}\n\n{phases()}\n{LANE_WORDS}\n## Calls\n\n{calls()}\n{CALL_WORDS}\n## Steps\n\n{edges()}\n{REQUEST_WORDS}\n{walk()}\n"


def main() -> int:
    """Write the page, or compare it."""
    text = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{PAGE.relative_to(ROOT)} is out of date: run make docs\n")
            return 1
        return 0
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
