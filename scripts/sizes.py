"""How big each package is, beside what it may be. A package that outgrows its budget is split, or its budget raised on purpose.

Prints lines of code (without blank ones, comments and docstrings) and modules of each package, the longest module, and the bytes of
both wheels; writes them to build/sizes.json. Exit status 1 where a budget is exceeded.
"""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import tempfile
import tokenize
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUDGETS = {
    "voxint.access": 300,
    "voxint.alerts": 260,
    "voxint.cli": 2000,
    "voxint.console": 3000,
    "voxint.db": 700,
    "voxint.doctor": 800,
    "voxint.gpu_phase": 3000,
    "voxint.init": 300,
    "voxint.lease": 500,
    "voxint.llm": 600,
    "voxint.recordings": 4500,
    "voxint.services": 4000,
    "voxint.standalone": 2400,
    "voxint.work": 900,
    "voxint": 900,
    "voxint_broker": 4500,
    "voxint_models": 3500,
}
"""Lines of code that a package may have; `voxint` is its own modules without those of its packages."""
LONGEST_MODULE = 450
WHEELS = {"voxint": (ROOT, 1_200_000), "voxint-broker": (ROOT / "packages" / "voxint-broker", 150_000)}
"""Where each distribution is built, and the bytes that its wheel may have."""


def code_lines(file: Path) -> int:
    """Lines that hold code: no blank ones, no comments, no docstrings."""
    text = file.read_text(encoding="utf-8")
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines = {
        number
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in skipped
        for number in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def package_of(file: Path) -> str:
    """The package of a budget that a module belongs to."""
    parts = file.relative_to(ROOT / "src").parts
    return ".".join(parts[:2]) if parts[0] == "voxint" and len(parts) > 2 else parts[0]


@dataclass
class Size:
    """What a package has."""

    lines: int = 0
    modules: int = 0
    longest: int = 0
    longest_module: str = ""

    def add(self, module: str, lines: int) -> None:
        """One more module."""
        self.lines += lines
        self.modules += 1
        if lines > self.longest:
            self.longest, self.longest_module = lines, module


def measured() -> dict[str, Size]:
    """The size of each package."""
    found: dict[str, Size] = {}
    for file in sorted((ROOT / "src").rglob("*.py")):
        if "__pycache__" not in file.parts:
            found.setdefault(package_of(file), Size()).add(str(file.relative_to(ROOT / "src")), code_lines(file))
    return found


def problems(packages: dict[str, Size], wheels: dict[str, int]) -> list[str]:
    """A line for everything that is bigger than it may be."""
    found = []
    for name, size in sorted(packages.items()):
        if size.lines > BUDGETS.get(name, 0):
            found.append(f"{name}: {size.lines} lines of code, its budget is {BUDGETS.get(name, 0)}")
        if size.longest > LONGEST_MODULE:
            found.append(f"{size.longest_module}: {size.longest} lines of code in one module, at most {LONGEST_MODULE}")
    for name, number in wheels.items():
        if number > WHEELS[name][1]:
            found.append(f"wheel {name}: {number} bytes, its budget is {WHEELS[name][1]}")
    return found


def wheel_bytes(folder: Path) -> int:
    """The size of the wheel that is built there."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        (wheel,) = Path(out).glob("*.whl")
        return wheel.stat().st_size


def main() -> int:
    """Print the tables; 1 where something is too big."""
    packages = measured()
    print(f"{'package':<20} {'modules':>7} {'lines':>6} {'budget':>6}  longest module")
    for name, size in sorted(packages.items()):
        longest = f"{size.longest_module} ({size.longest})"
        print(f"{name:<20} {size.modules:>7} {size.lines:>6} {BUDGETS.get(name, 0):>6}  {longest}")
    wheels = {name: wheel_bytes(folder) for name, (folder, _) in WHEELS.items()}
    for name, number in wheels.items():
        print(f"wheel {name:<14} {number:>21,} bytes of {WHEELS[name][1]:,}")
    target = ROOT / "build" / "sizes.json"
    target.parent.mkdir(exist_ok=True)
    document = {"packages": {name: asdict(size) for name, size in packages.items()}, "wheels": wheels}
    target.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    over = problems(packages, wheels)
    for line in over:
        print(f"too big: {line}", file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
