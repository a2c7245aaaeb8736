"""`voxint` in this process: what a command returns and prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxint.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def command_in(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command: `run("runs", "list")` gives exit status, stdout, stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return run
