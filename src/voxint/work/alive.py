"""`python -m voxint.work.alive NAME`: whether this host's Celery worker answers. The containers' health check.

NAME is the worker's: `worker` or `gpu-phase`; its process number follows in the full name. Exit 0 if it answered.
"""

from __future__ import annotations

import socket
import sys

from voxint.settings import load_settings
from voxint.work.app import make_app

ANSWER_SECONDS = 5.0
"""How long a worker may take to answer."""


def main(name: str) -> int:
    """Ask one worker; the exit status."""
    app = make_app(load_settings())
    node = f"{name}-*@{socket.gethostname()}"
    try:
        answers = app.control.ping(timeout=ANSWER_SECONDS, pattern=node, matcher="glob", limit=1)
    except Exception as error:  # noqa: BLE001 - whatever the message broker's client raises, the answer is no
        sys.stderr.write(f"{node} cannot be asked: {type(error).__name__}\n")
        return 1
    if not answers:
        sys.stderr.write(f"{node} does not answer\n")
    return 0 if answers else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
