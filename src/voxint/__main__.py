"""`python -m voxint` is the same as `voxint`."""

import sys

from voxint.cli.main import main

sys.exit(main())
