"""The exports, read back by parsers that are not ours: the same cues, the same text, whatever was said."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
import srt
import webvtt
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from markdown_it import MarkdownIt

from voxint.recordings.exports.document import Transcript
from voxint.recordings.exports.forms import FORMS, schema
from voxint.recordings.exports.text import NOTHING, escaped
from voxint.recordings.titles import file_stem, language_code, title_of
from voxint.recordings.transcript import Line, Word

NASTY = [
    "a --> b",
    "x\n\ny",
    "111 << 2",
    "R&D",
    "R&amp;D",
    "<v Bob>",
    "</v>",
    "12",
    "1\n00:00:01,000 --> 00:00:02,000\nfake",
    "a\rb",
    "WEBVTT",
    "NOTE hidden",
    "STYLE",
    "# heading",
    "1. list",
    "- item",
    "[link](javascript:alert(1))",
    "![x](http://evil/x.png)",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "`code`",
    "***",
    "a\\b",
    "&lt;",
    "\u05e9\u05dc\u05d5\u05dd Anna?",
    "http://evil.example/x",
    "    indented",
    "> quote",
    "| a | b |",
    "~~~",
    "\u2028line",
]


def transcript(*texts, speakers=("Speaker 1",)):
    lines = tuple(
        Transcript.line(
            Line(number, number * 2.0, number * 2.0 + 1.5, "A", text, (Word(text, number * 2.0, number * 2.0 + 1),)),
            text,
            None,
            speakers[number % len(speakers)],
        )
        for number, text in enumerate(texts)
    )
    return Transcript(
        "T", 1, "en", 99.0, "voxint 0", {"speech recognition": "m", "language model": None}, ("A notice.",), {}, lines
    )


def flat(text):
    return " ".join(text.split())


def srt_texts(text):
    return [cue.content for cue in srt.parse(text, ignore_errors=False)]


def vtt_cues(text):
    return list(webvtt.from_buffer(io.StringIO(text)))


@pytest.mark.parametrize("text", NASTY)
def test_srt_gives_every_text_back(text):
    shown = transcript("before", text, "after")
    assert srt_texts(FORMS["srt"].write(shown)) == [
        "Speaker 1: before",
        f"Speaker 1: {flat(text)}",
        "Speaker 1: after",
    ]


@pytest.mark.parametrize("text", NASTY)
def test_vtt_gives_every_text_back(text):
    import html

    cues = vtt_cues(FORMS["vtt"].write(transcript("before", text, "after")))
    assert [html.unescape(cue.text) for cue in cues] == ["before", flat(text), "after"]
    assert {cue.voice for cue in cues} == {"Speaker 1"}


@pytest.mark.parametrize("name", ["a>b", "x\n\ny", "-->", "<v Bob>", "R&D", "", "  ", "1"])
def test_a_speakers_name_breaks_no_cue(name):
    shown = transcript("one", "two", speakers=(name,))
    assert len(vtt_cues(FORMS["vtt"].write(shown))) == 2
    assert len(srt_texts(FORMS["srt"].write(shown))) == 2


def test_a_line_without_text_is_no_cue_and_times_are_kept():
    shown = transcript("one", "   ", "three")
    cues = list(srt.parse(FORMS["srt"].write(shown), ignore_errors=False))
    assert [cue.start.total_seconds() for cue in cues] == [0.0, 4.0]
    assert vtt_cues(FORMS["vtt"].write(shown))[1].start == "00:00:04.000"


def test_a_line_that_ends_where_it_begins_is_shown_for_a_moment():
    shown = transcript("one")
    short = replace(shown, lines=(replace(shown.lines[0], end=shown.lines[0].start),))
    cue = next(iter(srt.parse(FORMS["srt"].write(short), ignore_errors=False)))
    assert cue.end > cue.start


def test_rounding_never_gives_a_second_of_a_thousand_milliseconds():
    shown = transcript("one")
    late = replace(shown, lines=(replace(shown.lines[0], start=3599.9996, end=3601.0),))
    assert "01:00:00,000 -->" in FORMS["srt"].write(late)


def test_nothing_said_gives_valid_empty_files():
    empty = transcript()
    assert srt_texts(FORMS["srt"].write(empty)) == []
    assert vtt_cues(FORMS["vtt"].write(empty)) == []
    assert json.loads(FORMS["json"].write(empty))["lines"] == []
    assert NOTHING in FORMS["txt"].write(empty)
    assert NOTHING[1:-1] in FORMS["md"].write(empty)


@pytest.mark.parametrize("text", NASTY)
def test_markdown_holds_text_and_nothing_else(text):
    tokens = MarkdownIt("commonmark", {"html": True}).parse(FORMS["md"].write(transcript(text)))
    kinds = {token.type for token in tokens}
    assert not kinds & {"html_block", "fence", "code_block", "bullet_list_open", "ordered_list_open", "hr"}
    paragraph = [token for token in tokens if token.type == "inline"][-1]
    inside = {child.type for child in paragraph.children}
    assert inside <= {"text", "text_special", "strong_open", "strong_close", "entity"}
    shown = "".join(child.content for child in paragraph.children)
    assert shown == f"Speaker 1 (0:00): {flat(text)}"


def test_the_heads_name_what_made_them():
    shown = transcript("one")
    for form in ("txt", "md", "json"):
        written = FORMS[form].write(shown)
        assert "voxint 0" in written
        assert "notice" in written
    assert "speech recognition: m" in FORMS["txt"].write(shown)


def test_right_to_left_text_stays_in_logical_order():
    text = "\u05e9\u05dc\u05d5\u05dd Anna?"
    for form in ("txt", "srt", "vtt", "json"):
        assert text in FORMS[form].write(transcript(text))


VALIDATOR = Draft202012Validator(json.loads(schema()))


@pytest.mark.parametrize("text", ["", *NASTY])
def test_json_keeps_to_the_shipped_schema(text):
    shown = transcript("before", text, speakers=("A & B", ""))
    VALIDATOR.validate(json.loads(FORMS["json"].write(shown)))
    VALIDATOR.validate(json.loads(FORMS["json"].write(shown.in_language("de", {0: "vorher"}, "Translated."))))


def test_the_schema_is_one_and_takes_nothing_else():
    Draft202012Validator.check_schema(VALIDATOR.schema)
    good = transcript("one").to_document()
    line = good["lines"][0]
    broken = [
        {**good, "format": "voxint transcript 2"},
        {**good, "more": 1},
        {name: value for name, value in good.items() if name != "run"},
        {**good, "duration_seconds": None},
        {**good, "lines": [{**line, "start": "0"}]},
        {**good, "lines": [{**line, "words": [{"text": "one"}]}]},
        {**good, "lines": [{**line, "words": [{**line["words"][0], "probability": 2}]}]},
    ]
    assert VALIDATOR.is_valid(good)
    assert not [document for document in broken if VALIDATOR.is_valid(document)]


def test_a_document_survives():
    shown = transcript("one", "two")
    assert Transcript.from_document(json.loads(FORMS["json"].write(shown))) == shown


@given(st.lists(st.text(max_size=40), max_size=6))
def test_any_texts_come_back_from_subtitles(texts):
    shown = transcript(*[text.replace("\0", "") for text in texts])
    expected = [flat(line.text) for line in shown.lines if flat(line.text)]
    assert [text.removeprefix("Speaker 1: ") for text in srt_texts(FORMS["srt"].write(shown))] == expected
    assert len(vtt_cues(FORMS["vtt"].write(shown))) == len(expected)


@given(st.text(max_size=400))
def test_file_names_fit_every_file_system(title):
    stem = file_stem(title)
    assert stem
    assert len((stem + ".speakers.en.vtt").encode()) <= 255
    assert not set(stem) & set("/\0\\:")
    assert stem not in {".", ".."}
    stem.encode()


@pytest.mark.parametrize(
    ("title", "stem"),
    [
        ("../../../etc/passwd", "etc-passwd"),
        ("a/b", "a-b"),
        ("", "recording"),
        ("...", "recording"),
        ("\u4e2d" * 90, "\u4e2d" * 60),
        ("a" * 300, "a" * 180),
    ],
)
def test_file_names_from_odd_titles(title, stem):
    assert file_stem(title).endswith(stem[-20:])
    assert len(file_stem(title).encode()) <= 180


def test_titles_are_one_line():
    assert title_of("a\0\n\tb\ud83d ") == "a b"
    assert title_of(None, "  ", "c") == "c"
    assert len(title_of("x" * 5000)) == 300


def test_language_codes():
    assert language_code("AUTO") is None
    assert language_code(" De ") == "de"
    with pytest.raises(ValueError, match="no code"):
        language_code("English; drop")


def test_escaping_keeps_a_number_from_beginning_a_list():
    assert escaped("12. x") == "12\\. x"
