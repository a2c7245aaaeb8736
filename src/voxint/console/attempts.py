"""How often somebody may try a password or a token: after a few failures an address waits. Kept in this process alone."""

from __future__ import annotations

from collections import OrderedDict, deque
from ipaddress import IPv6Address, ip_address
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_FAILURES = 5
WITHIN_SECONDS = 300.0
_MOST_ADDRESSES = 10_000
_IPV6_NETWORK = 64


class Attempts:
    """Failures by address.

    Args:
        most: failures within the time after which an address waits.
        within_seconds: how long a failure counts.
        now: seconds that only go up.
    """

    def __init__(
        self,
        most: int = MOST_FAILURES,
        within_seconds: float = WITHIN_SECONDS,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._most = most
        self._within = within_seconds
        self._now = now
        self._lock = Lock()
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_seconds(self, address: str) -> float:
        """How long an address has to wait before it may try again; 0 where it may now."""
        with self._lock:
            failed = self._recent(group_of(address))
            return max(failed[0] + self._within - self._now(), 0.0) if len(failed) >= self._most else 0.0

    def begin(self, address: str) -> float:
        """Count an attempt before it is looked into, so that many at the same moment are no more than one by one.

        Gives how long the address has to wait; 0 where it may try now. Then the attempt stands as a failure until
        `succeeded` or `take_back`.
        """
        group = group_of(address)
        with self._lock:
            failed = self._recent(group)
            if len(failed) >= self._most:
                return max(failed[0] + self._within - self._now(), 0.0)
            self._count(group)
            return 0.0

    def failed(self, address: str) -> None:
        """Count a failure."""
        group = group_of(address)
        with self._lock:
            self._recent(group)
            self._count(group)

    def take_back(self, address: str) -> None:
        """The attempt that was begun last was none: it could not be looked into."""
        with self._lock:
            failed = self._recent(group_of(address))
            if failed:
                failed.pop()

    def succeeded(self, address: str) -> None:
        """Forget an address's failures."""
        with self._lock:
            self._failures.pop(group_of(address), None)

    def _count(self, group: str) -> None:
        self._failures.setdefault(group, deque(maxlen=self._most)).append(self._now())
        self._failures.move_to_end(group)
        while len(self._failures) > _MOST_ADDRESSES:
            self._failures.popitem(last=False)

    def _recent(self, group: str) -> deque[float]:
        failed = self._failures.get(group, deque())
        while failed and failed[0] + self._within <= self._now():
            failed.popleft()
        if not failed:
            self._failures.pop(group, None)
        return failed


def group_of(address: str) -> str:
    """What is counted together: one IPv4 address, or the network that one IPv6 customer has."""
    try:
        found = ip_address(address)
    except ValueError:
        return address[:60]
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or IPv6Address(int(found) >> _IPV6_NETWORK << _IPV6_NETWORK))
    return str(found)
