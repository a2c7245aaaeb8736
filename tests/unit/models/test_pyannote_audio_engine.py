"""The pyannote.audio engine around a pipeline of the tests' own: its turns, limits, device and cancelling."""

from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxint_models.audio import RATE
from voxint_models.pyannote.diarizer import SpokenTurn
from voxint_models.pyannote.engines import load
from voxint_models.pyannote.overlaps import cut
from voxint_models.pyannote.pyannote_audio import PyannoteAudio
from voxint_models.serving.errors import CancelledError, CannotServeError
from voxint_models.serving.options import Options
from voxint_models.serving.service import Cancel


class Weight:
    device = "cpu"


class Pipeline:
    """Gives the turns it was made with, in the form of version 3 or 4."""

    def __init__(self, turns, *, wrapped=True):
        self.turns, self.wrapped, self.calls = turns, wrapped, []
        self.weight = Weight()
        self._segmentation = SimpleNamespace(model=SimpleNamespace(parameters=lambda: iter([self.weight])))

    def __call__(self, given, hook, **limits):
        self.calls.append((given, limits))
        hook("segmentation", None, file=given, total=2, completed=1)
        tracks = [(SimpleNamespace(start=a, end=b), "_", label) for a, b, label in self.turns]
        annotation = SimpleNamespace(itertracks=lambda yield_label: iter(tracks))
        return SimpleNamespace(speaker_diarization=annotation) if self.wrapped else annotation


TORCH = SimpleNamespace(from_numpy=lambda array: array, __version__="2", version=SimpleNamespace(cuda="13.0", hip=None))


def engine(turns=(), **how):
    return PyannoteAudio(Pipeline(list(turns), **how), TORCH, "tiny")


def sound(seconds=5.0):
    return np.full(int(seconds * RATE), 0.1, np.float32)


@pytest.mark.parametrize("wrapped", [True, False])
def test_turns_of_both_forms_are_read_and_cut_to_the_recording(wrapped):
    made = engine([(-0.1, 2.0, "A"), (2.5, 9.0, "B")], wrapped=wrapped)
    assert made.diarize(sound(), 1, None, Cancel()) == [
        SpokenTurn(0.0, 2.0, "A", overlap=False),
        SpokenTurn(2.5, 5.0, "B", overlap=False),
    ]
    given, limits = made._pipeline.calls[0]
    assert (given["waveform"].shape, given["sample_rate"]) == ((1, 5 * RATE), RATE)
    assert limits == {"min_speakers": 1}
    made.diarize(sound(), 2, 3, Cancel())
    assert made._pipeline.calls[1][1] == {"min_speakers": 2, "max_speakers": 3}


def test_silence_and_next_to_nothing_never_reach_the_pipeline():
    made = engine([(0, 1, "A")])
    for samples in (np.zeros(0, np.float32), np.zeros(RATE, np.float32), sound(0.3)):
        assert made.diarize(samples, 1, None, Cancel()) == []
    assert made._pipeline.calls == []


def test_it_stops_when_nobody_waits_any_more():
    cancel = Cancel()
    cancel.set()
    with pytest.raises(CancelledError):
        engine([(0, 1, "A")]).diarize(sound(), 1, None, cancel)


def test_the_device_is_the_weights():
    made = engine()
    assert made.device() == "cpu"
    made._pipeline.weight.device = "cuda:0"
    assert made.device() == "cuda:0"


def test_a_turn_is_cut_where_another_lies_in_it():
    assert cut([(0.0, 10.0, "A"), (4.0, 6.0, "B")]) == [
        SpokenTurn(0.0, 4.0, "A", overlap=False),
        SpokenTurn(4.0, 6.0, "A", overlap=True),
        SpokenTurn(4.0, 6.0, "B", overlap=True),
        SpokenTurn(6.0, 10.0, "A", overlap=False),
    ]


def test_turns_of_one_speaker_that_touch_or_cover_each_other_are_no_overlap():
    assert cut([(0.0, 2.0, "A"), (2.0, 3.0, "A"), (1.0, 2.5, "A")]) == [SpokenTurn(0.0, 3.0, "A", overlap=False)]
    assert cut([]) == []


def test_without_its_packages_it_says_so_and_does_not_start():
    if find_spec("torch"):
        pytest.skip("PyTorch is installed")
    options = Options("127.0.0.1", 1, "pyannote.audio", "cpu", None, 1, 2, 1000, 60)
    with pytest.raises(CannotServeError, match=r"pyannote\.audio was asked for, and is not installed"):
        load(options)


TENTHS = st.integers(0, 60).map(lambda value: value / 10)


@given(st.lists(st.tuples(TENTHS, TENTHS, st.sampled_from("ABC")).filter(lambda turn: turn[0] < turn[1]), max_size=8))
def test_every_moment_has_the_speakers_that_it_had(turns):
    found = cut(turns)
    assert [turn.start for turn in found] == sorted(turn.start for turn in found)
    for moment in (k / 10 + 0.05 for k in range(60)):
        before = {speaker for start, end, speaker in turns if start <= moment < end}
        after = [turn for turn in found if turn.start <= moment < turn.end]
        assert {turn.speaker for turn in after} == before
        assert len(after) == len(before)
        assert all(turn.overlap == (len(before) > 1) for turn in after)
