"""Uploads: streamed to disk under names of our own, bounded in size, time and number; what is cut off leaves nothing.

No part of a body is kept in memory or in the temporary folder, which may be small and made of memory.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
import shutil
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, BinaryIO

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from voxint.console.door import int_or_none
from voxint.console.forms import RefusedError
from voxint.gpu_phase.reasons import clean
from voxint.storable import storable_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from fastapi import Request

    from voxint.recordings.runs import RunStore

log = logging.getLogger(__name__)

FOLDER = "uploads"
ENDING = ".media"
STALLED_SECONDS = 30.0
"""After so long without a byte a client is taken for gone."""
SLOWEST_BYTES_A_SECOND = 1024
"""Averaged over the whole; slower than this only holds a place."""
AT_ONCE = 32
SPARE_BYTES = 64 << 20
"""Disk space that uploads leave, together: the database may live on the same disk."""
FIELD_BYTES = 16 * 1024
_MOST_FIELDS = 20
_OVERHEAD_BYTES = 64 * 1024
_WRITE_BYTES = 1 << 20
_STRAY_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Taken:
    """An upload that is whole on disk. `name` is what its sender calls it; no file bears it."""

    path: Path
    name: str
    size: int
    fields: dict[str, str] = field(default_factory=dict)


class Intake:
    """Takes uploads in.

    Args:
        media_root: the folder of recordings; uploads are kept in a folder of their own below it.
        most_bytes: the largest recording that is taken.
    """

    def __init__(self, media_root: Path, most_bytes: int) -> None:
        self._folder = media_root.absolute() / FOLDER
        self._most = most_bytes
        self._under_way = 0

    @asynccontextmanager
    async def form(self, request: Request, check: Callable[[dict[str, str]], None]) -> AsyncIterator[Taken]:
        """A form with one file, as browsers send it. The file goes away at the end, where nobody has taken it over.

        Args:
            request: what comes in.
            check: is given the fields in front of the file, and refuses by raising.

        Raises:
            RefusedError: it cannot be taken; nothing is left of it.
        """
        kind, options = parse_options_header(request.headers.get("content-type", ""))
        boundary = options.get(b"boundary")
        if kind != b"multipart/form-data" or not boundary:
            raise RefusedError(415, "This is no upload", "A form with a file was expected.")
        async with self._place(request) as file:
            parts = _Parts(boundary, file, check)
            await self._pour(request, file, parts.feed)
            parts.end()
            yield Taken(file.path, parts.name, file.size, parts.fields)

    @asynccontextmanager
    async def body(self, request: Request, name: str) -> AsyncIterator[Taken]:
        """A body that is the file itself.

        Raises:
            RefusedError: it cannot be taken; nothing is left of it.
        """
        async with self._place(request) as file:
            await self._pour(request, file, file.put)
            yield Taken(file.path, name, file.size)

    def sweep(self, runs: RunStore) -> None:
        """Take away what a process that was killed has left."""
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            probe = self._folder / f"{secrets.token_hex(16)}.part"
            probe.touch()
            now = probe.stat().st_mtime  # the file system's own moment: a server's clock may differ from ours
            probe.unlink()
            for path in self._folder.iterdir():
                if now - path.stat().st_mtime > _STRAY_SECONDS and not runs.is_source(path):
                    path.unlink(missing_ok=True)

    @asynccontextmanager
    async def _place(self, request: Request) -> AsyncIterator[_File]:
        """A file to pour into, while there is room for it."""
        if self._under_way >= AT_ONCE:
            raise RefusedError(503, "Too many uploads", f"{AT_ONCE} uploads are under way: try again shortly.")
        size = int_or_none(request.headers.get("content-length"))
        if size > self._most + _OVERHEAD_BYTES:
            raise self._too_large()
        self._under_way += 1
        file = None
        try:
            file = await run_in_threadpool(self._open, size)
            yield file
        except OSError as error:
            raise _no_room(error) from None
        finally:
            self._under_way -= 1
            if file is not None:
                await run_in_threadpool(file.let_go)

    def _open(self, size: int) -> _File:
        self._folder.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(self._folder).free < size + SPARE_BYTES:
            raise OSError(errno.ENOSPC, "")
        return _File(self._folder / f"{secrets.token_hex(16)}.part")

    async def _pour(self, request: Request, file: _File, feed: Callable[[bytes], None]) -> None:
        stream = request.stream()
        begun = monotonic()
        arrived = 0
        try:
            while True:
                try:
                    async with asyncio.timeout(STALLED_SECONDS):
                        chunk = await anext(stream, None)
                except TimeoutError:
                    raise _too_slow() from None
                if chunk is None:
                    break
                arrived += len(chunk)
                lasted = monotonic() - begun
                if lasted > STALLED_SECONDS and arrived < lasted * SLOWEST_BYTES_A_SECOND:
                    raise _too_slow()
                feed(chunk)
                if file.size > self._most:
                    raise self._too_large()
                if file.waiting >= _WRITE_BYTES:
                    await run_in_threadpool(file.write)
        except ClientDisconnect:
            raise RefusedError(400, "The upload was cut off", "It ended before all of it had arrived.") from None
        except MultipartParseError:
            raise RefusedError(400, "This is no upload", "The form could not be read.") from None
        await run_in_threadpool(file.close)

    def _too_large(self) -> RefusedError:
        return RefusedError(
            413, "This is too large", f"A recording may have at most {bytes_words(self._most)} (UPLOAD_MAX_BYTES)."
        )


class _File:
    """The file that an upload becomes. Until somebody takes it over it goes away with the request."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._out: BinaryIO = path.open("xb")
        self._waiting = bytearray()

    @property
    def waiting(self) -> int:
        """Bytes that are not written yet."""
        return len(self._waiting)

    def put(self, data: bytes) -> None:
        """Take bytes on, to be written by the next `write`."""
        self._waiting += data
        self.size += len(data)

    def write(self) -> None:
        """Write what waits, where that leaves room: others may fill the disk at the same time.

        Raises:
            OSError: there is no room.
        """
        data, self._waiting = self._waiting, bytearray()
        if shutil.disk_usage(self.path.parent).free < len(data) + SPARE_BYTES:
            raise OSError(errno.ENOSPC, "")
        self._out.write(data)

    def close(self) -> None:
        """Write the rest, and close it."""
        self.write()
        self._out.close()

    def let_go(self) -> None:
        """Close it, and take it away where nobody has kept it under its other name."""
        with suppress(OSError, ValueError):
            self._out.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def keep(taken: Taken) -> Path:
    """Take an upload over: it stays. Gives where it lies now."""
    path = taken.path.with_suffix(ENDING)
    taken.path.rename(path)
    return path


class _Parts:
    """The parts of a form, as they come in: fields into a dict, the one file into its file."""

    def __init__(self, boundary: bytes, file: _File, check: Callable[[dict[str, str]], None]) -> None:
        self.fields: dict[str, str] = {}
        self.name = ""
        self._file = file
        self._check = check
        self._has_file = False
        self._finished = False
        self._header = (bytearray(), bytearray())
        self._headers: dict[bytes, bytes] = {}
        self._field: str | None = None
        self._value = bytearray()
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._part_begin,
                "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
                "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
                "on_header_end": self._header_end,
                "on_headers_finished": self._headers_finished,
                "on_part_data": self._part_data,
                "on_part_end": self._part_end,
                "on_end": self._end,
            },
        )

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body on."""
        self._parser.write(data)

    def end(self) -> None:
        """The body is over.

        Raises:
            RefusedError: it was not whole, or had no file.
        """
        if not self._finished:
            raise RefusedError(400, "The upload was cut off", "It ended before all of it had arrived.")
        if not self._has_file or not self._file.size:
            raise RefusedError(422, "There is no file", "Choose a recording first; an empty file is none.")

    def _part_begin(self) -> None:
        self._headers = {}
        self._value = bytearray()
        self._field = None

    def _header_end(self) -> None:
        name, value = self._header
        self._headers[bytes(name).lower()] = bytes(value)
        self._header = (bytearray(), bytearray())

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if b"filename" in options:
            if self._has_file:
                raise RefusedError(400, "Too many files", "One recording at a time.")
            self._check(self.fields)
            self._has_file = True
            self.name = storable_text(options[b"filename"].decode("utf-8", "replace"))
            return
        if len(self.fields) >= _MOST_FIELDS:
            raise RefusedError(400, "This is no upload", "The form has too many fields.")
        self._field = name

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._field is None:
            self._file.put(data[start:end])
            return
        self._value += data[start:end]
        if len(self._value) > FIELD_BYTES:
            raise RefusedError(413, "This is no upload", "A field of the form is too large.")

    def _part_end(self) -> None:
        if self._field is not None:
            self.fields[self._field] = storable_text(self._value.decode("utf-8", "replace"))

    def _end(self) -> None:
        self._finished = True


def title_in(name: str) -> str:
    """What a file's name says of a recording: without folders, of whatever system, and without its ending."""
    last = name.replace("\\", "/").rpartition("/")[2]
    stem, dot, _ending = last.rpartition(".")
    return (stem if dot and stem else last).strip(".")


def bytes_words(size: int) -> str:
    """A size for people."""
    for unit, large in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if size >= large:
            return f"{size / large:.3g} {unit}"
    return f"{size} bytes"


def _too_slow() -> RefusedError:
    return RefusedError(408, "The upload was too slow", f"Nothing, or next to nothing, came for {STALLED_SECONDS:g} s.")


def _no_room(error: OSError) -> RefusedError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return RefusedError(507, "There is no room", "The media folder has not enough room left for this recording.")
    log.warning("an upload could not be kept: %s", error.strerror or type(error).__name__)
    return RefusedError(
        500, "It could not be kept", f"The media folder cannot be written to: {clean(error.strerror or '')}."
    )
