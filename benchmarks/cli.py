"""The command line: `python benchmarks/cli.py`. Its commands beside an import of the libraries that it stands on.

Each command runs as a process of its own, in turns with the import, on a database in which GPU sharing is on and a
recording waits. The ratio is that of the middle times.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from figures import RATIO, Row, median, row
from gate import ENVIRON, fill, open_lane
from ground import database

from voxint.db.engine import make_engine

IMPORTS = [sys.executable, "-c", "import typer, pydantic_settings, sqlalchemy, psycopg"]
VOXINT = str(Path(sys.executable).with_name("voxint"))
COMMANDS = {"voxint gpu-phase status": 1.5, "voxint --help": 0.6}
"""Each command, and the most that it may take of the import's time."""


def seconds(argv: list[str], environ: dict[str, str]) -> float:
    """How long it runs. It must end well."""
    begun = time.perf_counter()
    subprocess.run(argv, env=environ, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def measure(*, quick: bool = False) -> list[Row]:
    """Both commands."""
    times = 7 if quick else 20
    found: dict[str, list[float]] = {name: [] for name in ("imports", *COMMANDS)}
    with database() as url:
        engine = make_engine(url)
        open_lane(engine)
        fill(engine, 1)
        engine.dispose()
        environ = {**os.environ, **ENVIRON, "DATABASE_URL": url}
        for number in range(times + 1):
            for name, times_of in found.items():
                argv = IMPORTS if name == "imports" else [VOXINT, *name.split()[1:]]
                took = seconds(argv, environ)
                if number:  # the first run of each reads the disk
                    times_of.append(took)
    rows = [row("import typer, pydantic_settings, sqlalchemy, psycopg", median(found["imports"]), "s", times)]
    for name, most in COMMANDS.items():
        rows.append(row(name, median(found[name]), "s", times))
        rows.append(row(f"{name} over the imports", median(found[name]) / median(found["imports"]), RATIO, times, most))
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    for each in measure(quick=parser.parse_args().quick):
        print(each)
