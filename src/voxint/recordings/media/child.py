"""The decoder's own process: `python -m voxint.recordings.media.child probe|decode`. Reads one file, writes JSON lines.

A file from outside is only ever opened here. The process has a limit on memory, opens the file by its number and not by
its name (a name can look like an option or an address), and ends with its parent: standard input is a pipe that closes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from voxint.recordings.media.facts import MediaError

MEMORY_BYTES = 4 << 30
"""Address space that the decoder may use; FFmpeg's libraries reserve far more than they touch."""
EXIT_MEDIA = 3
"""The file is the reason; a JSON line on stdout says why."""


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m voxint.recordings.media.child")
    parser.add_argument("what", choices=("probe", "decode"))
    parser.add_argument("source", type=Path)
    parser.add_argument("--to", type=Path)
    arguments = parser.parse_args()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    from voxint.recordings.media import decoder  # noqa: PLC0415 - after the limits: it loads FFmpeg

    try:
        with arguments.source.open("rb") as file:
            facts = decoder.look(file)
            say({"facts": facts})
            if arguments.what == "decode":
                file.seek(0)
                say({"done": decoder.decode(file, arguments.to, facts["track"], lambda at: say({"at": at}))})
    except MediaError as error:
        say({"error": str(error)})
        return EXIT_MEDIA
    except MemoryError:
        say({"error": "decoding it takes more memory than is allowed"})
        return EXIT_MEDIA
    except OSError as error:
        say({"os_error": error.strerror or type(error).__name__, "errno": error.errno})
        return EXIT_MEDIA
    return 0


def say(document: dict[str, Any]) -> None:
    """One JSON line to the parent."""
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def _end_with_parent() -> None:
    """The parent holds the other end of standard input, and writes nothing: reading ends when the parent does."""
    with suppress(OSError):
        while os.read(0, 1024):
            pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
