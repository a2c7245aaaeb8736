import sys

import pytest

from voxint.cli import models
from voxint.cli.output import CouldNotError


def test_the_arguments_go_to_the_servers_package_as_they_are(monkeypatch):
    seen = []

    def run(argv, **how):
        seen.append(argv)
        return type("Done", (), {"returncode": 7})()

    monkeypatch.setattr(models.subprocess, "run", run)
    assert models.run(["fetch", "--service", "titanet"]) == 7
    assert seen == [[sys.executable, "-m", "voxint_models.weights", "fetch", "--service", "titanet"]]


def test_without_that_package_it_says_what_to_run_instead(monkeypatch):
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    with pytest.raises(CouldNotError, match=r"-m voxint_models\.weights fetch"):
        models.run(["fetch"])
