"""Files that stages leave in a run's folder: written under a temporary name, with the claim's token in both names."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from voxint.recordings.errors import StageFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from voxint.recordings.stages.context import StageContext


@contextmanager
def new_file(context: StageContext, stem: str, ending: str) -> Iterator[tuple[Path, Path]]:
    """Gives (where to write, how it will be called). Kept only if the body ends well and the claim is still ours.

    The token makes the name this claim's own, so that a copy of the stage that lost its claim can write over nothing.

    Raises:
        ClaimLost: the claim was taken back meanwhile.
        StageFailed: the disk is full.
    """
    # Under the claim: a recording that was cancelled and deleted meanwhile gets no folder and no file again.
    with context.owning():
        context.run.folder.mkdir(parents=True, exist_ok=True)
    final = context.run.folder / f"{stem}-{context.claim.token}{ending}"
    temporary = final.with_name(final.name + ".part")
    try:
        yield temporary, final
        context.check_claim()
        sync(temporary)
        with context.owning():
            temporary.replace(final)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StageFailed("the disk of the media folder is full: free some space, then requeue") from None
        raise
    finally:
        with suppress(OSError):
            temporary.unlink()


def sync(path: Path) -> None:
    """Make a file's bytes outlive a power cut, before its name is given to it."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def remove_strays(context: StageContext, keep: set[str]) -> None:
    """Take away what copies of stages left that lost their claim. `keep`: names that the results speak of.

    Only while the claim is held: else it is the newer copy's files that are strays here.
    """
    for path in context.run.folder.iterdir():
        stray = path.name not in keep and path.name.startswith(("source-", "audio-", "transcript-"))
        if stray and path.is_file():
            with suppress(OSError):
                path.unlink()
