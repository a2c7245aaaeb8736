"""One reading of the GPU's memory. It says yes, no, or that it cannot tell; what cannot be told is never a yes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

HOLDERS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that has memory of a GPU, and how much in MiB; None where the driver cannot tell."""

    pid: int
    name: str
    used_mib: int | None = None

    @property
    def words(self) -> str:
        """For people."""
        return f"process {self.pid} ({self.name}{f', {self.used_mib} MiB' if self.used_mib else ''})"


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU's memory in MiB, and who uses it, the greatest first."""

    name: str
    free_mib: int
    total_mib: int
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """What a look at the memory said. `enough` is None where it could not be told: that is neither free nor taken."""

    enough: bool | None
    detail: str = ""
    cards: tuple[Card, ...] = ()

    @property
    def free_mib(self) -> int | None:
        """The free memory of the fullest GPU; None where it was not read."""
        return min((card.free_mib for card in self.cards), default=None)

    @property
    def holders(self) -> tuple[Holder, ...]:
        """Who uses the memory of any of the GPUs."""
        return tuple({holder.pid: holder for card in self.cards for holder in card.holders}.values())


class Gauge(Protocol):
    """Something that can say whether the GPU's memory is free."""

    def read(self) -> Reading:
        """Look once. Never raises: what goes wrong is an unknown reading."""


def unknown(detail: str) -> Reading:
    """A reading that failed."""
    return Reading(enough=None, detail=detail)


def compared(cards: Sequence[Card], need_mib: int) -> Reading:
    """Whether every card has what is needed. Figures that cannot be are no figures."""
    if not cards:
        return unknown("no GPU was read")
    for card in cards:
        if not 0 <= card.free_mib <= card.total_mib:
            return unknown(f"{card.name}: {card.free_mib} of {card.total_mib} MiB free cannot be")
    words = []
    for card in cards:
        text = f"{card.name}: {card.free_mib} of {card.total_mib} MiB free"
        if card.free_mib < need_mib:
            text += f", {need_mib} needed"
            if card.holders:
                more = len(card.holders) - HOLDERS_SHOWN
                names = ", ".join(holder.words for holder in card.holders[:HOLDERS_SHOWN])
                text += f"; held by {names}{f' and {more} more' if more > 0 else ''}"
        words.append(text)
    return Reading(all(card.free_mib >= need_mib for card in cards), "; ".join(words), tuple(cards))
