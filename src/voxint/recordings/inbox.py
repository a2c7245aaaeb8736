"""The watched folder: a file in MEDIA_ROOT/inbox that has not changed for a while is added, once.

Several workers may look at the same time, and any of them may die: a file is taken by renaming it, which one of them
alone can do, and what a dead one had taken is taken up again.
"""

from __future__ import annotations

import logging
import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from voxint.recordings.errors import NotAddedError

if TYPE_CHECKING:
    from pathlib import Path

    from voxint.recordings.runs import RunStore

log = logging.getLogger(__name__)

QUIET_SECONDS = 10.0
"""How long a file must not have changed."""
TAKEN_SECONDS = 120.0
"""After how long a file that somebody took, and neither added nor refused, is taken up again."""
UNFINISHED = (".part", ".partial", ".filepart", ".crdownload", ".download", ".tmp", ".temp", ".!ut", ".aria2")
"""Endings that programs give to files which they are still writing."""


class Inbox:
    """One watched folder.

    Args:
        runs: where recordings are added.
        media_root: the folder of recordings; `inbox` below it is watched.
    """

    def __init__(self, runs: RunStore, media_root: Path) -> None:
        self._runs = runs
        self._folder = media_root / "inbox"
        self._taken = media_root / "inbox" / ".taken"
        self._refused = media_root / "inbox" / "refused"

    def sweep(self) -> int:
        """Add what is complete; gives how many recordings were added."""
        self._taken.mkdir(parents=True, exist_ok=True)
        now = self._now()
        left, gone = self._left_behind(now)
        complete = [path for path in sorted(self._folder.iterdir()) if _complete(path, now)]
        added = sum(self._try(path) for path in [*left, *complete])
        for place in gone:
            with suppress(OSError):
                place.rmdir()
        return added

    def _now(self) -> float:
        """The file system's own moment: a server's clock may differ from ours."""
        probe = self._taken / f".now-{secrets.token_hex(4)}"
        probe.touch()
        moment = probe.stat().st_ctime
        probe.unlink(missing_ok=True)
        return moment

    def _try(self, path: Path) -> int:
        """Add one file; one that cannot be handled does not keep the others out."""
        try:
            return self._add(path)
        except OSError as error:
            log.warning("the inbox could not take %r: %s", path.name, error.strerror or type(error).__name__)
            return 0

    def _add(self, path: Path) -> int:
        place = self._taken / secrets.token_hex(8)
        place.mkdir()
        ours = place / path.name
        try:
            path.rename(ours)
        except OSError:
            with suppress(OSError):
                place.rmdir()
            return 0  # another worker was first
        try:
            self._runs.add(ours.absolute(), uploaded=True)
        except NotAddedError as error:
            self._refuse(ours, str(error))
            return 0
        return 1

    def _refuse(self, ours: Path, why: str) -> None:
        self._refused.mkdir(exist_ok=True)
        target = self._refused / ours.name
        if target.exists():
            target = self._refused / _shorter(f"{secrets.token_hex(3)}-{ours.stem}", ours.suffix[-20:])
        ours.rename(target)
        with suppress(OSError):
            ours.parent.rmdir()
        with suppress(OSError):
            (self._refused / _shorter(target.name, ".why.txt")).write_text(why + "\n", encoding="utf-8")
        log.warning("the inbox refused a file: %s", why)

    def _left_behind(self, now: float) -> tuple[list[Path], list[Path]]:
        """What was taken long ago and belongs to no run, and the places that may go away once they are empty.

        It is taken from where it lies: in the inbox there may be another file of its name by now.
        """
        left: list[Path] = []
        gone: list[Path] = []
        for place in self._taken.iterdir():
            with suppress(OSError):
                if now - place.stat().st_ctime >= TAKEN_SECONDS and place.is_dir():
                    left += [ours for ours in place.iterdir() if not self._runs.is_source(ours.absolute())]
                    gone.append(place)
        return left, gone


def _complete(path: Path, now: float) -> bool:
    if path.name.startswith(".") or path.name.lower().endswith(UNFINISHED) or path.is_symlink():
        return False
    try:
        if not path.is_file():
            return False
        seen = path.stat()
    except OSError:
        return False
    # A copy may set the time of the last change to that of the original; the inode's own time cannot be set.
    return seen.st_size > 0 and now - max(seen.st_mtime, seen.st_ctime) >= QUIET_SECONDS


def _shorter(name: str, ending: str) -> str:
    """A name with an ending, cut so that no file system refuses it for its length: 255 bytes."""
    room = 255 - len(os.fsencode(ending))
    return os.fsencode(name)[:room].decode("utf-8", "ignore") + ending
