"""scripts/setup.sh: the commands that it writes into the environment."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "setup.sh"
PYTHON = """#!/bin/sh
printf '%s\\n' "$@"
"""


def writes_commands():
    """The part of the script that writes them."""
    lines = SCRIPT.read_text(encoding="utf-8").splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("for name in voxint "))
    return "\n".join(lines[begin : lines.index("done", begin) + 1])


@pytest.mark.parametrize("folder", ["voxint", "My Projects/voxint", "it's/voxint", "long" * 40])
def test_the_commands_start_wherever_the_checkout_lies(tmp_path, folder):
    python = tmp_path / folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON, encoding="utf-8")
    python.chmod(0o755)
    subprocess.run(["/bin/sh", "-euc", writes_commands()], cwd=tmp_path / folder, check=True, timeout=60)
    for name, entry in (("voxint", "voxint.cli.main"), ("voxint-broker", "voxint_broker.cli")):
        command = python.with_name(name)
        text = command.read_text(encoding="utf-8")
        compile(text, name, "exec")
        assert f"from {entry} import main\n" in text
        done = subprocess.run([command, "runs", "a b"], capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout.splitlines() == [str(command), "runs", "a b"]
