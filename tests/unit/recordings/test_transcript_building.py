"""Words, times and speakers: nothing that was heard is lost, and no time moves backwards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxint.recordings.transcript import Line, Word, in_order, lines_of, repeated, segments_of
from voxint.services.heard import Heard, HeardSegment, HeardWord, Turn
from voxint.services.whisper import heard_in


def heard(*segments, words=()):
    return Heard("en", 10.0, "", tuple(segments), tuple(words), "m")


def text_of(words):
    return " ".join("".join(word.text for word in words).split())


def test_words_without_times_take_them_from_their_neighbours():
    found = segments_of(
        heard(
            HeardSegment(
                "In 2024 ok",
                0.0,
                3.0,
                (HeardWord("In", 0.0, 0.5), HeardWord("2024"), HeardWord("ok", 1.0, 1.0)),
            )
        ),
        10.0,
    )
    assert [(word.text.strip(), word.start, word.end) for word in found[0]] == [
        ("In", 0.0, 0.5),
        ("2024", 0.5, 1.0),
        ("ok", 1.0, 1.0),
    ]


def test_words_without_any_time_share_their_segment():
    found = segments_of(heard(HeardSegment("a b", 2.0, 4.0), words=(HeardWord("a"), HeardWord("b"))), 10.0)
    assert [(word.start, word.end) for word in found[0]] == [(2.0, 3.0), (3.0, 4.0)]


def test_punctuation_comes_from_the_text_where_the_words_have_none():
    words = (HeardWord("hello", 0, 1), HeardWord("dr", 1, 2), HeardWord("smith", 2, 3))
    found = segments_of(heard(HeardSegment(" Hello, Dr. Smith!", 0, 3, words)), 10.0)
    assert text_of(found[0]) == "Hello, Dr. Smith!"
    assert [word.text for word in found[0]] == [" Hello,", " Dr.", " Smith!"]


def test_a_script_without_spaces_gets_none():
    words = (HeardWord("\u4f60", 0, 1), HeardWord("\u597d", 1, 2))
    assert text_of(segments_of(heard(HeardSegment("\u4f60\u597d\u3002", 0, 2, words)), 10.0)[0]) == "\u4f60\u597d\u3002"


def test_words_that_are_not_in_the_text_stand_as_they_are():
    words = (HeardWord("two", 0, 1), HeardWord("words", 1, 2))
    assert text_of(segments_of(heard(HeardSegment("Something else entirely", 0, 2, words)), 10.0)[0]) == "two words"


def test_segments_without_words_are_one_piece_and_empty_ones_are_none():
    found = segments_of(heard(HeardSegment("  "), HeardSegment("Only text.", 1.0, 2.0)), 10.0)
    assert [[(word.text, word.start, word.end) for word in each] for each in found] == [[(" Only text.", 1.0, 2.0)]]


def test_a_letter_that_folds_to_two_shifts_nothing():
    words = (HeardWord("Stra\u00dfe", 0, 1), HeardWord("links", 1, 2))
    assert (
        text_of(segments_of(heard(HeardSegment("Stra\u00dfe, links.", 0, 2, words)), 9.0)[0]) == "Stra\u00dfe, links."
    )


def test_a_word_takes_the_speaker_who_has_most_of_it():
    segments = [[Word(" a", 0, 1), Word(" b", 1, 2), Word(" c", 2, 3)]]
    lines = lines_of(segments, [Turn(0, 1.8, "A"), Turn(1.8, 3, "B")])
    assert [(line.speaker, line.text) for line in lines] == [("A", "a b"), ("B", "c")]


def test_a_word_beside_the_turns_takes_the_nearest_and_far_from_them_none():
    lines = lines_of([[Word(" a", 0.0, 0.5)], [Word(" b", 8.0, 8.5)]], [Turn(1.0, 2.0, "A")])
    assert [line.speaker for line in lines] == ["A", None]


def test_a_voice_alone_weighs_more_than_one_that_talks_over():
    lines = lines_of([[Word(" a", 0, 1)]], [Turn(0, 1, "over", overlap=True), Turn(0.2, 1, "alone")])
    assert lines[0].speaker == "alone"


def test_a_slip_of_the_times_is_no_turn():
    words = [Word(" a", 0, 1), Word(" b", 1, 1.2), Word(" c", 1.2, 2)]
    lines = lines_of([words], [Turn(0, 1, "A"), Turn(1, 1.2, "B"), Turn(1.2, 2, "A")])
    assert [(line.speaker, line.text) for line in lines] == [("A", "a b c")]


def test_a_loop_is_noticed_and_kept():
    lines = [Line(number, number, number + 1, None, "Thank you.") for number in range(1, 1348)]
    assert repeated(lines) == ("thank you.", 1347)
    assert repeated(lines[:4]) is None


def test_a_line_survives_its_document():
    line = Line(1, 0.0, 1.0, "A", "a", (Word(" a", 0.0, 1.0, 0.5, "A"),))
    assert Line.from_document(line.to_document()) == line


numbers = st.one_of(st.none(), st.floats(-5, 30), st.integers(-5, 30))
words = st.builds(
    HeardWord, st.text("ab \u00e9\u4e2d.,'", max_size=6), numbers, numbers, st.one_of(st.none(), st.floats(0, 1))
)
segments = st.builds(
    HeardSegment, st.text("ab \u00e9\u4e2d.,'", max_size=20), numbers, numbers, st.lists(words, max_size=5).map(tuple)
)
turns = st.builds(
    lambda start, length, who, over: Turn(start, start + length, who, over),
    st.floats(0, 20),
    st.floats(0.01, 5),
    st.sampled_from("AB"),
    st.booleans(),
)


@given(st.lists(segments, max_size=6), st.lists(words, max_size=8), st.lists(turns, max_size=6))
def test_whatever_a_model_says_lines_have_text_speakers_and_times_inside_the_recording(given_segments, spare, spoken):
    found = segments_of(heard(*given_segments, words=spare), 10.0)
    lines = lines_of(found, spoken)
    assert [line.id for line in lines] == list(range(1, len(lines) + 1))
    for line in lines:
        assert line.text.strip()
        assert 0 <= line.start <= line.end <= 10.0
        starts = [word.start for word in line.words]
        assert starts == sorted(starts)
        assert {word.speaker for word in line.words} == {line.speaker}


def test_ids_and_times_out_of_order_are_seen():
    one, two = Line(1, 0, 1, None, "a"), Line(2, 2, 3, None, "b")
    assert in_order([one, two])
    assert not in_order([two, one])


def test_the_forms_of_several_servers_are_read():
    nested = {"text": "hi", "segments": [{"start": 0, "end": 1, "text": "hi", "words": [{"word": "hi", "start": 0}]}]}
    assert heard_in(nested).segments[0].words[0].text == "hi"
    bare = heard_in({"text": "all in one", "duration": 4.0})
    assert bare.segments == (HeardSegment("all in one", 0.0, 4.0),)
    with pytest.raises(Exception, match="without text"):
        heard_in({"segments": None})
