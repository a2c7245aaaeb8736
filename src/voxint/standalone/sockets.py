"""A folder for a Unix socket. The kernel takes about 100 bytes of path, and servers read some signs in it their own way."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from pathlib import Path

LONGEST_PATH = 100
"""Bytes; macOS has 104 with the final zero, Linux 108."""
_PLAIN = re.compile(r"[A-Za-z0-9_./-]+")


class SocketFolderError(RuntimeError):
    """The folder for a socket is not ours alone."""


def socket_folder(folder: Path, name: str, *, owner: int | None = None) -> Path:
    """The folder itself where a socket in it has a path that every server takes; else a private one in the temporary folder.

    Args:
        folder: where the socket would best stand; absolute.
        name: the socket's file name.
        owner: whose process makes the socket; this one's user by default.

    Raises:
        SocketFolderError: the temporary folder's entry belongs to somebody else.
    """
    text = str(folder)
    if len(os.fsencode(text)) + len(name) + 1 <= LONGEST_PATH and _PLAIN.fullmatch(text):
        return folder
    short = Path(tempfile.gettempdir()) / f"voxint-{os.geteuid()}-{hashlib.sha256(os.fsencode(text)).hexdigest()[:10]}"
    short.mkdir(mode=0o700, exist_ok=True)
    found = short.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in {os.geteuid(), owner}:
        raise SocketFolderError(f"cannot use {short} for sockets: it belongs to somebody else; take it away")
    short.chmod(0o700)
    if owner is not None and owner != found.st_uid:
        os.chown(short, owner, owner)
    return short
