"""Guards of decide, plan, lanes and the gate, each switched off by patching a named function: the walk must notice.

Nothing in the product knows of this. What a guard is for stands beside it; a guard that could be switched off without
a violation would be one that proves nothing.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from voxint.gpu_phase import decide, lanes, plan, reasons
from voxint.gpu_phase.model import Condition, Phase
from voxint.gpu_phase.outcomes import Lost
from walk import gate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Guard:
    """`broken` takes the right function and gives the one that stands in for it."""

    name: str
    what: str
    places: tuple[tuple[Any, str], ...]
    broken: Callable[[Any], Any]

    @contextmanager
    def off(self) -> Iterator[None]:
        """The guard is switched off inside."""
        with ExitStack() as stack:
            for place, name in self.places:
                stack.enter_context(patch.object(place, name, self.broken(getattr(place, name))))
            yield


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda _right: lambda *_args, **_named: value


def _guard(place: Any, name: str, what: str, broken: Callable[[Any], Any]) -> Guard:
    room = place.__name__.rsplit(".", 1)[-1]
    return Guard(f"{room}.{name}", what, ((place, name),), broken)


def _not_running(_right: Any) -> Any:
    def all_stopped(services: Any) -> bool:
        return services is not None and all(service.condition is not Condition.RUNNING for service in services)

    return all_stopped


def _ignores_loss(right: Any) -> Any:
    def renew(state: Any, seen: Any) -> Any:
        return state if isinstance(seen.renewal, Lost) else right(state, seen)

    return renew


def _keeps_readiness(right: Any) -> Any:
    def move(before: Any, *args: Any, **named: Any) -> Any:
        made = right(before, *args, **named)
        return replace(
            made, state=replace(made.state, llm_ready=before.llm_ready, llm_checked_at=before.llm_checked_at)
        )

    return move


def _does_not_count(right: Any) -> Any:
    def fail(state: Any, *args: Any, **named: Any) -> Any:
        return replace(right(state, *args, **named), failures=state.failures)

    return fail


def _no_backoff(right: Any) -> Any:
    def fail(state: Any, *args: Any, **named: Any) -> Any:
        return replace(right(state, *args, **named), retry_after=state.retry_after)

    return fail


def _forgets_failures(right: Any) -> Any:
    def home(before: Any, *args: Any, **named: Any) -> Any:
        made = right(before, *args, **named)
        return replace(made, state=replace(made.state, failures=0, retry_after=None))

    return home


def _without_cut(right: Any) -> Any:
    return lambda *args, **named: replace(right(*args, **named), cut=None)


GUARDS = (
    _guard(plan, "may", "what was seen before in the tick takes a call away", _always(value=True)),
    _guard(plan, "renewed", "nothing is started without this tick's renewal", _always(value=True)),
    _guard(plan, "_wanted", "the lease and the request pick the calls", _always(value=True)),
    _guard(plan, "release_asked", "a release on the way to the GPU asks nothing of the broker", _always(value=False)),
    Guard("plan.all_stopped", "unknown is never stopped", ((plan, "all_stopped"), (decide, "all_stopped")), _not_running),
    _guard(decide, "running", "a service that others started is noticed", _always(())),
    _guard(decide, "_stopped", "a service that died in audio is noticed", _always(())),
    _guard(decide, "_our_lease", "a lease that status names is ours to give back", _always(None)),
    _guard(decide, "_holding", "a lease that the broker says is ours is stored", lambda _right: lambda state, _lease: state),
    _guard(decide, "_expired", "a lease ends by our own clock", _always(value=False)),
    _guard(decide, "_renew", "a renewal that says lost is believed", _ignores_loss),
    _guard(decide, "_lease_lost", "a lost lease takes the running work back", _without_cut),
    _guard(decide, "_service_stopped", "a service that died takes the running work back", _without_cut),
    _guard(decide, "backing_off", "a failure keeps the next try away", _always(value=False)),
    _guard(decide, "dwelt", "a phase lasts for min dwell", _always(value=True)),
    _guard(decide, "on_hold", "an operator's hold keeps a switch away", _always(value=False)),
    _guard(decide, "in_window", "outside its hours, or shortly before their end, no switch begins by itself", _always(value=True)),
    _guard(decide, "window_closed", "audio ends with the hours in which it began", _always(value=False)),
    _guard(decide, "_all_healthy", "audio begins when all are healthy", _always(value=True)),
    _guard(decide, "_forces_the_drain", "the release that ended audio does not force the drain",
           lambda _right: lambda seen: plan.release_asked(seen.request)),
    _guard(decide, "_held_off", "a release in llm holds the next switch off", lambda _right: lambda state, *_: state),
    _guard(decide, "later", "a release never shortens a backoff", lambda _right: lambda _first, second: second),
    _guard(decide, "_met_by_the_way_back", "a release is met by the hand-back", _always(value=False)),
    _guard(decide, "_still_on_course", "audio-now is met only on the way to audio", _always(value=True)),
    _guard(decide, "_move", "an answer from before a switch never opens the lane", _keeps_readiness),
    _guard(decide, "fail", "a failure is counted", _does_not_count),
    Guard("decide.fail (backoff)", "a failure sets the time of the next try", ((decide, "fail"),), _no_backoff),
    _guard(decide, "_home", "a failed cycle keeps its count", _forgets_failures),
    _guard(reasons, "blind", "no switch begins blindly", _always(None)),
    _guard(lanes, "lease_good", "the GPU lane is open under a good lease", _always(value=True)),
    _guard(lanes, "post_lane_open", "the post lane is open after a fresh answer",
           lambda _right: lambda state, _now, _policy: state.phase is Phase.LLM),
    _guard(lanes, "goes_on", "a segment goes on only in its own drain", _always(value=True)),
    _guard(gate, "may_claim", "a claim looks at the stored phase",
           lambda right: lambda lane, item, state: item == gate.QUEUED or right(lane, item, state)),
    _guard(gate, "in_progress", "a drain waits for what runs and for segments that have begun",
           lambda _right: lambda item: item == gate.RUNNING),
    _guard(gate, "still_drained", "the save looks again at the drained lane", _always(value=True)),
    _guard(gate, "cut", "running work is put back with the step that ends its services", lambda _right: lambda item: item),
    _guard(gate, "reap", "the work of a dead worker is given back", lambda _right: lambda item: item),
    _guard(gate, "after_a_while", "a segment that nobody takes does not block a drain",
           lambda _right: lambda item: item),
    _guard(gate, "write_accepted", "a worker without its claim writes nothing", _always(value=True)),
    _guard(gate, "consumes", "a tick ends only the request that it saw", _always(value=True)),
)  # fmt: skip
