"""What cannot be used ends a command of the broker in one line, and never in a trace."""

from __future__ import annotations

import pytest

from voxint_broker.cli import main
from voxint_broker.config import check
from voxint_broker.doctor import Severity, examine

NOBODY = "http://127.0.0.1:9/gpu"


def test_doctor_tells_of_a_state_folder_that_cannot_be_looked_at(tmp_path):
    # A name that is too long raises where it is looked for, as a folder does that may not be entered.
    folder = tmp_path / ("x" * 300) / "state"
    service = {"name": "lm", "kind": "child", "command": ["true"], "ready_url": "http://127.0.0.1:9/"}
    config = check({"state_dir": str(folder), "memory": {"kind": "none"}, "service": [service]}, tmp_path)
    (found,) = [finding for finding in examine(config) if finding.code == "state-dir"]
    assert found.severity is Severity.FAILURE
    assert "cannot read the journal" in found.text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["127.0.0.1:9100/gpu"], "the broker's address must be an http:// or https:// address with a host"),
        (["http://127.0.0.1:99999/gpu"], "the broker's address must be"),
        (["http://[::1/gpu"], "the broker's address must be"),
        (["http:///gpu"], "the broker's address must be"),
        ([NOBODY, "--service-url", "http://127.0.0.1:port/"], "--service-url must be"),
        ([NOBODY, "--service-url", ""], "--service-url must be"),
        ([NOBODY, "--token-file", "{folder}/missing"], "token_file: cannot read"),
        ([NOBODY, "--token-file", "{folder}/empty"], "must be printable ASCII, and not empty"),
        ([NOBODY, "--token-file", "{folder}/lines"], "must be printable ASCII, and not empty"),
    ],
)
def test_check_says_what_it_cannot_use(tmp_path, capsys, arguments, said):
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "lines").write_text("secret\nlines\n")
    code = main(["check", "--yes", *(argument.format(folder=tmp_path) for argument in arguments)])
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert said in err
    assert "secret" not in err
