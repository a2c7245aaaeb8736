"""A long recording is cut where nobody speaks: nothing lost, nothing twice, and no more memory for a longer one."""

import itertools
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxint_models.audio import RATE, as_samples
from voxint_models.serving.errors import CancelledError
from voxint_models.serving.service import Cancel
from voxint_models.whisper.faster import FasterWhisper, moved
from voxint_models.whisper.heard import Segment, Wish, Word
from voxint_models.whisper.pieces import LAST_SECONDS, LOOK, Piece, pieces, quiet

STEP = 0.032


def loudness(samples):
    """Speech is what is loud."""
    size = int(STEP * RATE)
    return [float(np.abs(samples[at : at + size]).max() > 0.01) for at in range(0, len(samples), size)]


def numbered(seconds):
    """Every sample is another number than its neighbours, so that a lost or doubled one shows."""
    return (np.arange(int(seconds * RATE)) % 30_011 + 1_000).astype(np.int16)


def in_parts(samples, size=4_096):
    return (samples[at : at + size] for at in range(0, len(samples), size))


def lost_or_doubled(samples, found):
    """How many samples are not where they belong."""
    whole = np.concatenate([piece.samples for piece in found])
    if len(whole) != len(samples):
        return abs(len(whole) - len(samples))
    starts = [round(piece.start * RATE) for piece in found]
    ends = itertools.accumulate((len(piece.samples) for piece in found), initial=0)
    assert starts == list(ends)[:-1]
    return int((whole != as_samples(samples)).sum())


@settings(max_examples=40, deadline=None)
@given(seconds=st.floats(0, 60), longest=st.floats(11, 30), size=st.integers(100, 100_000))
def test_no_sample_is_lost_or_in_two_pieces(seconds, longest, size):
    samples = numbered(seconds)
    found = list(pieces(in_parts(samples, size), loudness, longest_seconds=longest))
    assert lost_or_doubled(samples, found) == 0
    assert len(found) == 1 or all(len(piece.samples) <= longest * RATE for piece in found[:-1])
    assert len(found) == 1 or len(found[-1].samples) >= LAST_SECONDS * RATE - 1
    # A part may be long; beyond it, no piece is longer than was wished.
    assert len(found[-1].samples) < (longest + LAST_SECONDS) * RATE + 1


def test_the_twins_that_overlap_or_leave_out_are_found():
    samples = numbered(40)
    found = list(pieces(in_parts(samples), loudness, longest_seconds=15))
    assert len(found) > 2
    overlapping = [Piece(p.start, np.concatenate([p.samples, p.samples[-100:]])) for p in found]
    leaving_out = [Piece(p.start, p.samples[:-1]) for p in found]
    swapped = [found[0], Piece(found[1].start, found[1].samples[::-1]), *found[2:]]
    assert all(lost_or_doubled(samples, broken) > 0 for broken in (overlapping, leaving_out, swapped))


@pytest.mark.parametrize(("begins", "ends"), [(12.5, 13.1), (13.0, 14.5), (12.0, 15.0)])
def test_the_cut_is_in_the_middle_of_the_longest_silence(begins, ends):
    samples = numbered(30)
    samples[int(12.2 * RATE) : int(12.3 * RATE)] = 0  # a shorter one
    samples[int(begins * RATE) : int(ends * RATE)] = 0
    first = next(pieces(in_parts(samples), loudness, longest_seconds=15))
    assert 15 * (1 - LOOK) == 12
    assert len(first.samples) / RATE == pytest.approx((begins + ends) / 2, abs=2 * STEP)


def test_where_somebody_always_speaks_the_cut_is_where_it_is_quietest():
    samples = np.full(3 * RATE, 0.5, np.float32)
    samples[int(1.9 * RATE) : int(2.1 * RATE)] = 0.05
    assert quiet(samples, loudness) / RATE == pytest.approx(2.0, abs=0.1)


def most_memory(work):
    """The largest memory that was held at once, in MB."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def hours(count):
    """Parts of silence, made as they are asked for."""
    return (np.zeros(RATE, np.int16) for _ in range(int(count * 3600)))


def no_speech(samples):
    return [0.0] * (len(samples) // 512)


def test_memory_does_not_grow_with_the_length():
    def through(count):
        return most_memory(lambda: [None for _ in pieces(hours(count), no_speech)])

    half, three = through(0.5), through(3)
    assert three < 1.5 * half  # six times the length
    assert three < 80


def test_the_twin_that_collects_first_is_found_by_its_memory():
    assert most_memory(lambda: [None for _ in pieces([np.concatenate(list(hours(1)))], no_speech)]) > 200


class Model:
    """Hears `languages` one after the other, a word in each piece of so many seconds, and keeps what it was asked."""

    supported_languages = ("en", "de", "fr")
    model = SimpleNamespace(device="cpu", compute_type="int8")

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def transcribe(self, samples, *, language, **given):
        self.asked.append((language, len(samples) / RATE, given["initial_prompt"]))
        guess, words = self.answers.pop(0)
        segments = []
        for text, start, end in words:
            word = SimpleNamespace(word=f" {text}", start=start, end=end, probability=0.9)
            about = {"tokens": [1], "temperature": 0.0, "avg_logprob": -0.1, "compression_ratio": 1.0}
            segment = SimpleNamespace(start=start, end=end, text=f" {text}", words=[word], no_speech_prob=0.0, **about)
            segments.append(segment)
        return iter(segments), SimpleNamespace(language=language or guess)


def engine(model):
    return FasterWhisper(model, "m", lambda samples, check: no_speech(samples), longest_seconds=10)


def test_times_count_from_the_recordings_beginning():
    # Ten seconds at most, cut in the middle of the last two: at 9 and 18.
    model = Model(("en", [("one", 1.0, 1.5), ("two", 8.0, 30.0)]), ("en", [("three", 0.5, 1.0)]), ("en", []))
    heard = engine(model).hear(in_parts(numbered(24)), Wish(words=True, prompt="names"), Cancel())
    assert [length for _, length, _ in model.asked] == pytest.approx([9, 9, 6], abs=0.05)
    assert [(s.text, s.start, s.end) for s in heard.segments] == [
        (" one", 1.0, 1.5),
        (" two", 8.0, pytest.approx(9, abs=0.05)),  # no time lies after the end of its piece
        (" three", pytest.approx(9.5, abs=0.05), pytest.approx(10, abs=0.05)),
    ]
    assert [(s.words[0].start, s.words[0].end) for s in heard.segments] == [(s.start, s.end) for s in heard.segments]
    assert heard.duration == 24.0
    assert [prompt for _, _, prompt in model.asked] == ["names"] * 3


def test_the_first_piece_with_speech_says_the_language():
    model = Model(("fr", []), ("de", [("eins", 1, 2)]), ("en", [("zwei", 1, 2)]))
    heard = engine(model).hear(in_parts(numbered(24)), Wish(), Cancel())
    assert [language for language, _, _ in model.asked] == [None, None, "de"]
    assert (heard.language, heard.text) == ("de", "eins zwei")


def test_a_silent_piece_is_not_asked_about():
    samples = numbered(24)
    samples[: 12 * RATE] = 0
    model = Model(("en", [("late", 6.0, 6.5)]), ("en", []))
    heard = engine(model).hear(in_parts(samples), Wish(), Cancel())
    assert len(model.asked) == 2
    assert heard.segments[0].start == pytest.approx(15, abs=0.05)
    silent = engine(Model()).hear(in_parts(np.zeros(24 * RATE, np.int16)), Wish(), Cancel())
    assert (silent.language, silent.duration, silent.segments) == ("en", 24.0, ())


def test_it_stops_between_two_pieces_when_it_is_given_up():
    cancel = Cancel()
    model = Model(("en", [("one", 1, 2)]))

    def parts():
        yield from in_parts(numbered(16))
        cancel.set()

    with pytest.raises(CancelledError):
        engine(model).hear(parts(), Wish(), cancel)
    assert len(model.asked) == 1


def test_a_moved_segment_keeps_the_rest():
    segment = Segment(1.0, 2.0, " a", (Word(" a", 1.0, 2.0, 0.5),), (3,), 0.2, -0.4, 1.5, 0.1)
    assert moved(segment, 100.0, 1.5) == Segment(
        101.0, 101.5, " a", (Word(" a", 101.0, 101.5, 0.5),), (3,), 0.2, -0.4, 1.5, 0.1
    )


def test_the_device_is_where_the_model_says_that_it_is_now():
    model = Model()
    model.model = SimpleNamespace(device="cpu", device_index=[0])
    made = engine(model)
    assert made.device() == "cpu"
    model.model.device, model.model.device_index = "cuda", [1]
    assert made.device() == "cuda:1"
