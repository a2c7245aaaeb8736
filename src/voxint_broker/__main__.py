"""`python -m voxint_broker`."""

from __future__ import annotations

import sys

from voxint_broker.cli import main

sys.exit(main())
