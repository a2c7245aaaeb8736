"""Passwords as Argon2id hashes. Few are worked out at a time: each takes tens of megabytes, and strangers may ask."""

from __future__ import annotations

from threading import BoundedSemaphore

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

FEWEST_CHARACTERS = 8
MOST_CHARACTERS = 1000
_AT_ONCE = 2
_WAIT_SECONDS = 10.0

_hasher = PasswordHasher()
_room = BoundedSemaphore(_AT_ONCE)


class BusyError(RuntimeError):
    """Too many passwords are being checked at this moment."""


def hashed(password: str) -> str:
    """The hash that is stored.

    Raises:
        ValueError: the password is too short or too long to be one; the message says which.
        BusyError: too many are worked out at this moment.
    """
    if len(password) < FEWEST_CHARACTERS:
        raise ValueError(f"a password needs at least {FEWEST_CHARACTERS} characters")
    if len(password) > MOST_CHARACTERS:
        raise ValueError(f"a password may have at most {MOST_CHARACTERS} characters")
    with _Room():
        return _hasher.hash(password)


def matches(stored: str, password: str) -> bool:
    """Whether this is the password of a stored hash.

    Raises:
        BusyError: too many are worked out at this moment.
    """
    if not password or len(password) > MOST_CHARACTERS:
        return False
    with _Room():
        try:
            return _hasher.verify(stored, password)
        except (VerificationError, InvalidHashError):
            return False


class _Room:
    """A place among those that are worked out at the same time."""

    def __enter__(self) -> None:
        if not _room.acquire(timeout=_WAIT_SECONDS):
            raise BusyError("too many sign-ins at this moment: try again shortly")

    def __exit__(self, *_error: object) -> None:
        _room.release()
