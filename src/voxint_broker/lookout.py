"""What is seen of the services and of the GPU while nothing is switched: for the status, and for a person to hear of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxint_broker.adapters.protocol import Condition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxint_broker.adapters.protocol import Adapter, Look
    from voxint_broker.memory.reading import Holder, Reading
    from voxint_broker.switching import Part


class Lookout:
    """The last look at each service, and who was on the GPU when the lease began."""

    def __init__(self) -> None:
        self._looks: dict[str, Look] = {}
        self._before: frozenset[int] = frozenset()
        self.foreign: tuple[Holder, ...] = ()

    def look(self, adapter: Adapter) -> Look:
        """Look at a service, and remember it for the status."""
        found = self._looks[adapter.name] = adapter.look()
        return found

    def services(self, parts: Sequence[Part]) -> dict[str, dict[str, Any]]:
        """Each service's condition. What costs nothing is looked at now; the rest as it was at the last look."""
        told = {}
        for part in parts:
            look = self.look(part.adapter) if part.adapter.quick else self._looks.get(part.adapter.name)
            told[part.adapter.name] = {
                "condition": look.condition.value if look is not None else None,
                "detail": (look.detail or None) if look is not None else "not looked at yet",
            }
        return told

    def down(self, parts: Sequence[Part]) -> str | None:
        """Which services do not run, by the last looks, and what becomes of that; None when none is missing."""
        words = [
            text
            for part in parts
            if (look := self._looks.get(part.adapter.name)) is not None and (text := _missing(part.adapter, look))
        ]
        return "; ".join(words) or None

    def lease_began(self, reading: Reading | None) -> None:
        """Whoever is on the GPU now, before its holder can have begun, is none of the holder's."""
        self._before = frozenset(holder.pid for holder in reading.holders) if reading is not None else frozenset()
        self.foreign = ()

    def lease_ended(self) -> None:
        """There is no lease any more that anybody could use the GPU beside."""
        self.foreign = ()

    def see(self, reading: Reading, programs: Sequence[str]) -> tuple[Holder, ...]:
        """Who takes the GPU's memory beside the lease: was there before it, or is none of the lease's programs."""
        self.foreign = tuple(
            holder
            for holder in reading.holders
            if holder.pid in self._before or (programs and not any(program in holder.name for program in programs))
        )
        return self.foreign


def gone(look: Look) -> bool:
    """Whether the service cannot serve: it is not there, or only parts of it are left."""
    return look.condition is Condition.STOPPED or look.leftover


def _missing(adapter: Adapter, look: Look) -> str | None:
    if look.condition is Condition.UNKNOWN:
        return f"it cannot be told whether {adapter.name} runs: {look.detail}"
    if not gone(look):
        return None
    how = adapter.last_words() or look.detail
    after = "it is started again" if adapter.keep_running else "it is not the broker's to start (keep_running is off)"
    return f"{adapter.name} does not run{f' ({how})' if how else ''}: {after}"
