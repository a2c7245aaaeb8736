"""Mutation testing of the turn-taking: `make mutants`.

Copies the product and its tests to build/mutants, lets mutmut change one thing at a time in the pure modules of the
phase machine and in the gate, and runs the tests that reach the changed function. The gate's tests need PostgreSQL: one
server, started here, serves them all.
What no test notices must stand in tests/mutants_left.toml with a reason. Ends with one line:

    mutants: 1675 killed, 20 left
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from voxint.db.engine import make_engine
from voxint.db.migrate import upgrade
from voxint.standalone.postgres import EmbeddedPostgres

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "mutants"
LEFT = ROOT / "tests" / "mutants_left.toml"
TEMPLATE = "voxint_template"
"""The migrated database on the gate's server; tests/integration/conftest.py has the same name."""
LIMIT = 0.05
"""The share of mutants that may be left, each with its reason."""

PURE = ("decide", "plan", "policy", "lanes")
PURE_TESTS = (
    "tests/unit/gpu_phase/test_decide_llm.py",
    "tests/unit/gpu_phase/test_decide_to_audio.py",
    "tests/unit/gpu_phase/test_decide_audio.py",
    "tests/unit/gpu_phase/test_decide_way_back.py",
    "tests/unit/gpu_phase/test_plan_and_lanes.py",
    "tests/unit/gpu_phase/test_windows.py",
)


@dataclass(frozen=True)
class Part:
    """Modules that are mutated together, and the tests that must notice."""

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    database: bool = False


@dataclass(frozen=True)
class Left:
    """A mutant that no test noticed: where it is, and the changed lines."""

    where: str
    change: str

    @property
    def key(self) -> tuple[str, str]:
        """Where and what, without the spaces that formatting changes."""
        return self.where, re.sub(r"\s+", " ", self.change).strip()


GATE_TESTS = (
    "tests/integration/test_gate_and_store.py",
    "tests/integration/test_gate_rules.py",
    "tests/unit/gpu_phase/test_door_statements.py",
)
PARTS = (Part("pure", PURE, PURE_TESTS), Part("gate", ("gate", "door"), GATE_TESTS, database=True))


def workspace(part: Part) -> Path:
    """A fresh copy that mutmut may work in."""
    folder = WORK / part.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("src", "tests", "migrations"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    tests = [name for name in part.tests if (ROOT / name).exists()]
    only = [f"src/voxint/gpu_phase/{name}.py" for name in part.modules]
    (folder / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\n"
        'pythonpath = ["tests/support", "tests"]\n'
        'addopts = ["--import-mode=importlib"]\n'
        "[tool.mutmut]\n"
        'source_paths = ["src"]\n'
        'also_copy = ["migrations"]\n'
        f"only_mutate = {json.dumps(only)}\n"
        f"pytest_add_cli_args_test_selection = {json.dumps(tests)}\n"
        'pytest_add_cli_args = ["-p", "no:xdist", "-p", "no:hypothesispytest"]\n'
        "track_dependencies = false\n"
        "use_git_change_detection = false\n",
        encoding="utf-8",
    )
    return folder


@contextlib.contextmanager
def server(part: Part) -> Iterator[dict[str, str]]:
    """The environment for a part's tests: with the folder of a PostgreSQL where they need one."""
    if not part.database:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="vx-mutants-") as home:
        options = {"fsync": "off", "max_connections": "200", "idle_in_transaction_session_timeout": "2s"}
        postgres = EmbeddedPostgres(Path(home) / "data", Path(home) / "server.log", options=options)
        postgres.start()
        try:
            postgres.make_database(TEMPLATE)
            engine = make_engine(postgres.url(TEMPLATE))
            upgrade(engine)
            engine.dispose()
            yield {"VOXINT_TEST_POSTGRES": home}
        finally:
            postgres.stop()


def mutmut(folder: Path, *words: str, more: Mapping[str, str] | None = None) -> str:
    """Run mutmut in a workspace and give what it printed."""
    environment = os.environ | {"COLUMNS": "200", "PYTHONDONTWRITEBYTECODE": "1"} | (more or {})
    done = subprocess.run(
        [sys.executable, "-m", "mutmut", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        tail = done.stdout.replace("\r", "\n")[-3000:]
        raise SystemExit(f"mutmut {' '.join(words)} ended with {done.returncode}:\n{tail}")
    return done.stdout


def results(folder: Path) -> dict[str, str]:
    """Every mutant and what became of it."""
    lines = mutmut(folder, "results", "--all", "true").splitlines()
    pairs = (line.strip().rsplit(": ", 1) for line in lines if ": " in line)
    return {name: verdict for name, verdict in pairs if "__mutmut_" in name}


def left(folder: Path, mutant: str) -> Left:
    """What a mutant changed."""
    module, function = mutant.split("__mutmut_", maxsplit=1)[0].rsplit(".", 1)
    where = f"{module.rsplit('.', 1)[-1]}.{re.sub('^x_|^xǁ', '', function).replace('ǁ', '.')}"
    diff = mutmut(folder, "show", mutant).splitlines()
    changed = [line for line in diff if re.match(r"[-+](?![-+])", line)]
    return Left(where, "\n".join(changed))


def reasons() -> dict[tuple[str, str], str]:
    """The mutants that may be left, with why."""
    listed = tomllib.loads(LEFT.read_text(encoding="utf-8")).get("left", [])
    return {Left(one["where"], one["change"]).key: one["reason"] for one in listed}


def same_statement(change: str) -> str:
    """Why a changed line of SQL changes nothing: its words have no case. Empty where anything else is changed.

    What stands in quotes, and the names of values, must be the same: there the case counts.
    """
    lines = change.splitlines()
    before = "".join(line[1:] for line in lines if line.startswith("-"))
    after = "".join(line[1:] for line in lines if line.startswith("+"))
    exact = [re.findall(r"'[^']*'|:\w+|\{[^}]*\}", side) for side in (before, after)]
    is_sql = re.search(r"\b(select|update|set|where|and|order by|from)\b", before, re.IGNORECASE) is not None
    if is_sql and before != after and before.casefold() == after.casefold() and exact[0] == exact[1]:
        return "the same statement: SQL's words have no case"
    return ""


def table(found: list[tuple[Left, str]]) -> str:
    """The mutants that are left, for people."""
    lines = ["| where | change | why no test can or need notice |", "| --- | --- | --- |"]
    for one, reason in found:
        change = "<br>".join(f"`{line.strip()}`" for line in one.change.replace("|", "\\|").splitlines())
        lines.append(f"| `{one.where}` | {change} | {reason} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Mutate, count, and compare what is left with the reasons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, help="tests at the same time")
    parser.add_argument("--only", choices=[part.name for part in PARTS], help="one part alone")
    arguments = parser.parse_args()
    known = reasons()
    begun = time.monotonic()
    killed, found, unexplained = 0, [], 0
    for part in PARTS:
        if arguments.only not in {None, part.name}:
            continue
        folder = workspace(part)
        with server(part) as more:
            mutmut(folder, "run", "--max-children", str(arguments.jobs), more=more)
        verdicts = results(folder)
        alive = [name for name, verdict in verdicts.items() if verdict not in {"killed", "timeout", "segfault"}]
        killed += len(verdicts) - len(alive)
        print(f"{part.name}: {len(verdicts)} mutants of {', '.join(part.modules)}, {len(alive)} left", flush=True)
        for name in alive:
            one = left(folder, name)
            reason = known.get(one.key) or same_statement(one.change)
            unexplained += not reason
            found.append((one, reason or "NO REASON YET"))
    WORK.joinpath("left.md").write_text(table(found), encoding="utf-8")
    print(table(found))
    print(f"took {time.monotonic() - begun:.0f} s; the table stands in build/mutants/left.md")
    print(f"mutants: {killed} killed, {len(found)} left")
    return 0 if not unexplained and len(found) <= LIMIT * (killed + len(found)) else 1


if __name__ == "__main__":
    sys.exit(main())
