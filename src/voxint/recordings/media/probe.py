"""Starts the decoder's process and reads what it says: a look at the headers, and the decoding itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any

from voxint.recordings.media.child import EXIT_MEDIA
from voxint.recordings.media.facts import MediaError, MediaFacts
from voxint.settings import SECRETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

__all__ = ["DecoderStopped", "MediaError", "MediaFacts", "decode", "probe"]

PROBE_SECONDS = 30.0
"""Longest look at a file's headers."""
STALL_SECONDS = 120.0
"""Longest silence of a decoder that is at work."""
_MODULE = "voxint.recordings.media.child"


class DecoderStopped(Exception):  # noqa: N818 - the decoder was stopped, by us or by the system
    """The decoder ended without a word: killed, or stopped because its claim was lost."""


def probe(path: Path) -> MediaFacts:
    """Look at a media file's headers and first packets.

    Raises:
        MediaError: it cannot be worked on, with the reason in words.
    """
    for document in _run(["probe", str(path)], PROBE_SECONDS, threading.Event()):
        if "facts" in document:
            return MediaFacts.from_document(document["facts"])
    raise MediaError("the decoder broke on it: it is damaged, or made to do harm")


def decode(
    source: Path, to: Path, *, lost: threading.Event, tell: Callable[[MediaFacts, float], None]
) -> tuple[MediaFacts, dict[str, Any]]:
    """Look at a file and decode its chosen track into `to`; see decoder.decode for what it gives beside the facts.

    `tell` hears the facts and the seconds that are done.

    Raises:
        MediaError: the file is the reason.
        DecoderStopped: the decoder died, or `lost` was set.
        OSError: the disk is full or gone.
    """
    facts: MediaFacts | None = None
    for document in _run(["decode", str(source), "--to", str(to)], STALL_SECONDS, lost):
        if "facts" in document:
            facts = MediaFacts.from_document(document["facts"])
        elif facts is not None and "at" in document:
            tell(facts, float(document["at"]))
        elif facts is not None and "done" in document:
            return facts, document["done"]
    raise DecoderStopped("the decoder stopped without a word")


def _run(arguments: list[str], silence: float, lost: threading.Event) -> Iterator[dict[str, Any]]:
    """The child's documents, one by one. It is gone when this ends, however it ends."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", _MODULE, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        env=_without_secrets(os.environ),
    )
    reader = _Lines(process)
    try:
        for document in reader.read(silence, lost):
            if "error" in document:
                raise MediaError(str(document["error"]))
            if "os_error" in document:
                raise OSError(int(document["errno"] or 0), str(document["os_error"]))
            yield document
        if process.wait(timeout=5) not in {0, EXIT_MEDIA}:
            return
    finally:
        process.kill()
        process.wait()
        reader.join()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a process that opens files from outside: it needs no password and no token."""
    return {name: value for name, value in environ.items() if name.removesuffix("_FILE") not in SECRETS}


class _Lines:
    """Reads a child's JSON lines in a thread, so that silence and a lost claim are noticed."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._found: deque[dict[str, Any]] = deque()
        self._some = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the end of the child's last words; it has ended, so they have too."""
        self._thread.join(timeout=5)

    def _collect(self) -> None:
        try:
            for line in self._process.stdout or ():
                self._found.append(json.loads(line))
                self._some.set()
        except ValueError:
            pass  # half a line of a child that was killed, or a pipe that was closed
        finally:
            self._ended.set()
            self._some.set()

    def read(self, silence: float, lost: threading.Event) -> Iterator[dict[str, Any]]:
        heard = monotonic()
        while True:
            while self._found:
                heard = monotonic()
                yield self._found.popleft()
            if self._ended.is_set() and not self._found:
                return
            if lost.is_set():
                raise DecoderStopped("the claim was taken back while it decoded")
            if monotonic() - heard > silence:
                raise MediaError(f"the decoder said nothing for {silence:.0f} s: the file is damaged")
            self._some.wait(0.2)
            self._some.clear()
