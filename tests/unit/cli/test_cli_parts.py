"""The parts of the command line that need no server: lengths of time, the environment file, output, following."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import typer
from phase_views import NOON, state_of, view_of

from voxint.cli import output, runs_view, spans
from voxint.cli.environment import complete, data_folder, parse
from voxint.cli.follow import arrived
from voxint.cli.output import CouldNotError
from voxint.gpu_phase.model import Cause, Phase, RequestKind, RequestOutcome
from voxint.gpu_phase.store import Event
from voxint.recordings.run import Run


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1d", 86400), ("1h30m", 5400), ("45", 45)]
)
def test_lengths_of_time(text, seconds):
    assert spans.parse(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "soon", "0", "-5s", "2 h", "h", "1h30", "99999d", "1e3s", "nan"])
def test_what_is_no_length_of_time(text):
    with pytest.raises(typer.BadParameter):
        spans.parse(text)


def test_the_environment_file_is_read_as_it_stands():
    text = "# a comment\nA=1\n\n  # another\nB=x = \"y\" z\nWHISPER_COMMAND='a b' -m c\nnonsense\n"
    assert parse(text) == {"A": "1", "B": 'x = "y" z', "WHISPER_COMMAND": "'a b' -m c"}


def test_the_standalones_file_is_read_only_without_a_database_url(tmp_path):
    (tmp_path / "voxint.env").write_text("DATABASE_URL=postgresql://standalone\nREDIS_URL=redis://s\nLLM_MODEL=m\n")
    home = {"VOXINT_HOME": str(tmp_path), "REDIS_URL": "redis://mine", "LLM_MODEL": " "}
    assert complete(home) == {
        "VOXINT_HOME": str(tmp_path),
        "DATABASE_URL": "postgresql://standalone",
        "REDIS_URL": "redis://mine",
        "LLM_MODEL": "m",
    }
    for name in ("DATABASE_URL", "DATABASE_URL_FILE"):
        mine = {**home, name: "postgresql://mine"}
        assert complete(mine) == mine
    assert complete({"VOXINT_HOME": str(tmp_path / "absent")}) == {"VOXINT_HOME": str(tmp_path / "absent")}


def test_an_environment_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "voxint.env").mkdir()
    with pytest.raises(CouldNotError, match=r"cannot read .*voxint.env: Is a directory"):
        complete({"VOXINT_HOME": str(tmp_path)})


def test_the_data_folder():
    assert str(data_folder({"HOME": "/home/ann"})) == "/home/ann/.local/share/voxint"
    assert str(data_folder({"HOME": "/home/ann", "XDG_DATA_HOME": "/data"})) == "/data/voxint"
    assert str(data_folder({"VOXINT_HOME": "/v", "XDG_DATA_HOME": "/data"})) == "/v"


@pytest.mark.parametrize("text", ["bad [/red] reply", "[/]", "[slug].mp4", "[Errno 111] refused", "[bold]x[/bold]"])
def test_brackets_are_printed_as_they_are(text, capsys):
    output.say(text)
    output.complain(text)
    assert capsys.readouterr() == (f"{text}\n", f"error: {text}\n")


def test_nothing_that_a_terminal_obeys_is_printed(capsys):
    output.say("a\x1b]0;title\x07b\u202ec\r\nd\x9be")
    assert capsys.readouterr().out == "a ]0;title bc  d e\n"


def test_a_long_line_is_not_broken(capsys):
    output.say("x" * 500)
    assert capsys.readouterr().out == "x" * 500 + "\n"


def test_a_table_lines_wide_characters_up(capsys):
    output.say_table(("a", "b", "c"), [("中文", "1", "[x]"), ("z", "22", "")])
    assert capsys.readouterr().out == "a     b   c\n中文  1   [x]\nz     22\n"


def test_json_is_all_that_is_printed(capsys):
    output.say_json({"a": "ü[/]"})
    assert capsys.readouterr() == ('{\n  "a": "ü[/]"\n}\n', "")


def moved(to, cause=Cause.WAITING):
    return Event(NOON, None, Phase(to), cause, None, None, None, None, None, None, None)


ACTED = RequestOutcome.ACTED


@pytest.mark.parametrize(
    ("kind", "phase", "outcome", "since", "there"),
    [
        ("audio-now", "llm", None, [], False),
        ("audio-now", "draining_post", ACTED, [moved("draining_post", Cause.AUDIO_NOW)], False),
        ("audio-now", "audio", ACTED, [moved("draining_post", Cause.AUDIO_NOW), moved("audio")], True),
        ("audio-now", "llm", ACTED, [moved("draining_post", Cause.AUDIO_NOW), moved("audio"), moved("llm")], True),
        ("audio-now", "audio", RequestOutcome.MET, [], True),
        ("audio-now", "draining_post", ACTED, [moved("llm"), moved("draining_post", Cause.AUDIO_NOW)], False),
        ("release", "audio", None, [], False),
        ("release", "draining", ACTED, [moved("draining", Cause.RELEASE_ASKED)], False),
        ("release", "llm", ACTED, [moved("draining", Cause.RELEASE_ASKED), moved("llm")], True),
        ("release", "llm", ACTED, [], True),
        ("release", "error", None, [], False),
        ("release", "error", ACTED, [], False),
    ],
)
def test_waiting_ends_when_it_is_so(kind, phase, outcome, since, there):
    assert arrived(RequestKind(kind), view_of(Phase(phase)), outcome, since) is there


@pytest.mark.parametrize(
    ("kind", "phase", "outcome", "since", "words"),
    [
        ("audio-now", "llm", RequestOutcome.SUPERSEDED, [], "a newer request"),
        ("audio-now", "llm", ACTED, [moved("draining_post", Cause.AUDIO_NOW), moved("llm")], "refused"),
        ("audio-now", "error", ACTED, [moved("draining_post", Cause.AUDIO_NOW), moved("error")], "refused"),
        ("release", "error", ACTED, [moved("error")], "could not be handed back"),
    ],
)
def test_waiting_ends_where_it_cannot_come_about(kind, phase, outcome, since, words):
    state = state_of(Phase(phase), last_error="refused", failures=1)
    with pytest.raises(CouldNotError, match=words):
        arrived(RequestKind(kind), view_of(Phase(phase), state=state), outcome, since)


def run_python(code, **environ):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, **environ}
    )


def test_the_commands_import_none_of_the_heavy_libraries():
    code = (
        "import sys; import voxint.cli.main; "
        "print(sorted(set(sys.modules) & {'celery', 'docker', 'fastapi', 'av', 'sqlalchemy', 'httpx', 'pydantic'}))"
    )
    assert run_python(code).stdout == "[]\n"


def test_help_exits_0_and_wrong_usage_2():
    assert run_python("import sys; from voxint.cli.main import main; sys.exit(main(['--help']))").returncode == 0
    wrong = run_python("import sys; from voxint.cli.main import main; sys.exit(main(['nonsense']))")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "Traceback" not in wrong.stderr


def test_a_terminal_without_the_characters_does_not_break_a_command():
    code = "from voxint.cli import output; from voxint.cli.main import main; main(['--help']); output.say('ü中\\udcff')"
    done = run_python(code, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stdout.endswith("\\xfc\\u4e2d\n")


def test_a_reader_that_leaves_early_is_no_fault():
    code = (
        "import sys; from voxint.cli import main as m; "
        "m.app.registered_commands.clear(); "
        "m.app.command(name='flood')(lambda: [print('x' * 1000) for _ in range(10000)]); "
        "sys.exit(m.main(['flood']))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(20) == 1
    assert err == b""


def voxint_as_process(arguments, redirected="", **environ):
    """A command as a process, with its streams as a shell redirects them."""
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -m voxint {arguments} {redirected}', sys.executable],
        capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **environ},
    )  # fmt: skip


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["--help", "runs schema", "placement images", "placement images --json"])
def test_output_that_finds_no_room_is_said_in_a_line(command, unbuffered):
    done = voxint_as_process(command, ">/dev/full", PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (1, "error: cannot write: No space left on device\n")


@pytest.mark.parametrize("command", ["--help", "runs schema", "placement images"])
def test_a_reader_that_left_before_the_first_line_is_no_fault(command):
    reading, writing = os.pipe()
    os.close(reading)
    argv = [sys.executable, "-m", "voxint", *command.split()]
    environ = {**os.environ, "PYTHONUNBUFFERED": ""}  # so that it is written at the end, as it is for most people
    done = subprocess.run(argv, stdout=writing, stderr=subprocess.PIPE, check=False, timeout=120, env=environ)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("redirected", [">&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_no_fault(redirected):
    done = voxint_as_process("placement images", redirected)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_log_from_a_closed_stream_is_refused_and_one_that_is_not_utf8_is_read(tmp_path):
    closed = voxint_as_process("placement log whisper -", "<&-")
    assert (closed.returncode, closed.stderr) == (1, "error: cannot read -: standard input is closed\n")
    (tmp_path / "log").write_bytes(b"one \xff line\n")
    strict = {"PYTHONIOENCODING": "utf-8:strict"}  # what an ordinary locale makes of it
    other = voxint_as_process("placement log whisper - --json", f"<'{tmp_path}/log'", **strict)
    assert (other.returncode, json.loads(other.stdout)) == (0, {"service": "whisper", "starts": []})


@pytest.mark.parametrize("address", ["postgresql://h:notaport/db", "postgresql://127.0.0.1:1/db?foo=bar"])
@pytest.mark.parametrize("command", ["runs list", "gpu-phase status --json"])
def test_an_address_of_the_database_that_can_be_none_is_said_in_a_line(address, command):
    done = voxint_as_process(command, DATABASE_URL=address)
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(("error: DATABASE_URL: ", "error: cannot reach the database at 127.0.0.1:1/db: invalid"))


def test_what_may_be_a_secret_in_a_recordings_address_is_not_shown():
    address = "https://files.example/a/talk.mp3?signature=s3cret"
    run = Run(7, "talk", address, "url", "done", "finalize", Path("/m"), NOON)
    shown = json.dumps([runs_view.lines(run), runs_view.record(run)])
    assert "s3cret" not in shown
    assert "https://files.example/a/talk.mp3" in shown
    named_so = replace(run, source="/media/talk?x.mp3", source_kind="file")
    assert ("source", "/media/talk?x.mp3") in runs_view.lines(named_so)
