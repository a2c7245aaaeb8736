from datetime import UTC, datetime

import pytest

from voxint.standalone.demo import items, known_words
from voxint.standalone.demo.items import DemoError, State


def test_names_differ_and_spare_the_demos_own(tmp_path):
    paths = []
    for name in ("a/x.wav", "b/x.mp3", "timeline.wav"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
        paths.append(path)
    found = items.items(paths)
    assert [item.name for item in found] == ["x", "x-2", "timeline-2"]
    assert len({item.sha256 for item in found}) == 3


@pytest.mark.parametrize(("name", "why"), [("nothing.wav", "no such file"), (".", "no plain file")])
def test_what_is_no_file_is_told(tmp_path, name, why):
    with pytest.raises(DemoError, match=why):
        items.items([tmp_path / name])


def test_the_samples_are_there():
    assert len(items.samples()) >= 3


def test_the_state_comes_back_as_it_was(tmp_path):
    state = State("c", datetime(2026, 1, 2, tzinfo=UTC), {"a": 1}, datetime(2026, 1, 3, tzinfo=UTC), 12.5)
    items.save(tmp_path / "demo.json", state)
    assert items.load(tmp_path / "demo.json") == state
    unfinished = State("c", datetime(2026, 1, 2, tzinfo=UTC), {})
    items.save(tmp_path / "demo.json", unfinished)
    assert items.load(tmp_path / "demo.json") == unfinished


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"code": 1, "begun_at": "x", "runs": {}, "done_at": null}', "null"])
def test_a_spoilt_state_counts_as_none(tmp_path, text):
    (tmp_path / "demo.json").write_text(text)
    assert items.load(tmp_path / "demo.json") is None


def test_the_known_words_of_a_sample(tmp_path):
    (tmp_path / "x.txt").write_text("Mara: Good morning.\nTom: So: it is.\nMara: Yes\n\n")
    known = known_words.read(tmp_path / "x.ogg")
    assert known == known_words.Known("Good morning. So: it is. Yes", 2)
    assert known_words.read(tmp_path / "y.ogg") is None


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Good  Morning, Tom!", "good morning tom"),
        ("well-known", "well known"),
        ("don\u2019t", "don't"),
        ("... ", ""),
    ],
)
def test_only_words_are_compared(text, plain):
    assert known_words.plain_words(text) == plain


def test_the_error_rate_counts_wrong_missing_and_added_words():
    known = known_words.Known("one two three four", 1)
    heard = known_words.Understood("x", known, "One two, free four five", 1)
    assert known_words.word_error_rate([heard]) == pytest.approx(0.5)
    assert known_words.word_error_rate([known_words.Understood("x", known, "One, two, three four.", 1)]) == 0
    assert known_words.word_error_rate([known_words.Understood("x", known, "", 1)]) == 1
