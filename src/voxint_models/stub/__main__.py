"""`python -m voxint_models.stub SERVICE --port N`: one stand-in as a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from voxint_models.stub.behaviour import Behaviours, behaviour_of, parser
from voxint_models.stub.server import serve


def main() -> int:
    """Run until SIGTERM; the exit status."""
    arguments = parser().parse_args()
    control = os.environ.get("STUB_CONTROL")
    behaviours = Behaviours(arguments.service, behaviour_of(arguments), Path(control) if control else None)
    return serve(arguments.service, (arguments.host, arguments.port), behaviours)


if __name__ == "__main__":
    sys.exit(main())
