import json
import os
import subprocess
import sys

import pytest

from voxint_models.card import CardFiles, CardTakenError, Side, on_the_card, take


@pytest.fixture
def files(tmp_path):
    return CardFiles(tmp_path / "card.lock", tmp_path / "card.ledger")


def entries(files):
    return [json.loads(line) for line in files.ledger.read_text().splitlines()]


def let_go(card):
    """Give the lock back before the process ends, which is how the product does it."""
    os.close(card._lock_fd)


def test_several_audio_services_are_on_the_card_together(files):
    cards = [take(files, Side.AUDIO, name) for name in ("whisper", "pyannote", "titanet")]
    assert [entry["service"] for entry in entries(files)] == ["whisper", "pyannote", "titanet"]
    assert {entry["event"] for entry in entries(files)} == {"start"}
    for card in cards:
        let_go(card)


@pytest.mark.parametrize(("first", "second"), [("audio", "llm"), ("llm", "audio"), ("llm", "llm")])
def test_the_second_is_told_who_is_in_the_way(files, first, second):
    card = take(files, Side(first), "the-first")
    with pytest.raises(CardTakenError) as caught:
        take(files, Side(second), "the-second")
    assert "the-second: cannot load on the card: the-first" in str(caught.value)
    assert f"({first} side, pid {os.getpid()}, since " in str(caught.value)
    assert len(entries(files)) == 1, "who did not get the card writes no line"
    let_go(card)
    let_go(take(files, Side(second), "the-second"))


def test_leaving_is_written_once_and_keeps_the_lock(files):
    card = take(files, Side.LLM, "language_model")
    card.leave()
    card.leave()
    assert [entry["event"] for entry in entries(files)] == ["start", "end"]
    with pytest.raises(CardTakenError):
        take(files, Side.AUDIO, "whisper")
    let_go(card)


def test_a_request_is_written_down_also_when_it_fails(files):
    card = take(files, Side.AUDIO, "whisper")
    with pytest.raises(RuntimeError), card.request("transcribe"):
        raise RuntimeError
    assert [(entry["event"], entry["request"]) for entry in entries(files)] == [
        ("start", None),
        ("request_start", "transcribe"),
        ("request_end", "transcribe"),
    ]
    let_go(card)


def test_broken_lines_and_processes_that_are_gone_are_passed_over(files):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    mine = {"event": "start", "side": "audio", "service": "whisper", "pid": os.getpid(), "at": "x", "request": None}
    lines = ["{half", "[]", '{"pid": "seven"}', json.dumps(mine | {"pid": gone.pid}), json.dumps(mine), "\x00\x00"]
    files.ledger.write_text("\n".join(lines))
    assert on_the_card(files.ledger) == [mine]
    assert on_the_card(files.ledger.with_name("none")) == []
    assert on_the_card(None) == []


def test_without_files_nothing_is_guarded():
    files = CardFiles.from_environment({"CARD_LOCK": "", "OTHER": "x"})
    assert files == CardFiles(None, None)
    with take(files, Side.LLM, "language_model").request("chat"):
        take(files, Side.AUDIO, "whisper").leave()


def test_a_ledger_that_cannot_be_written_stops_nothing(tmp_path, capsys):
    card = take(CardFiles(None, tmp_path / "no" / "folder"), Side.AUDIO, "whisper")
    card.leave()
    assert "whisper: cannot write to the card's ledger" in capsys.readouterr().err
