"""The real recognizer hears the same words of a recording in many pieces as in one, and each word once."""

import itertools
import re
from pathlib import Path

import jiwer
import numpy as np
import pytest

from voxint_models.audio import RATE, whole
from voxint_models.serving.options import read
from voxint_models.serving.service import Cancel
from voxint_models.whisper import faster
from voxint_models.whisper.heard import Wish

pytestmark = [pytest.mark.models, pytest.mark.timeout(400)]
SAMPLES = Path(__file__).parents[3] / "examples" / "speech"
NAMES = ("festival", "garden", "museum")


def recording():
    sounds = []
    for name in NAMES:
        with (SAMPLES / f"{name}.ogg").open("rb") as file:
            sounds.append(whole(file, 600))
    return np.concatenate(sounds)


def words(text):
    return re.sub(r"[^a-z0-9' ]", " ", text.lower()).split()


def known():
    lines = [line for name in NAMES for line in (SAMPLES / f"{name}.txt").read_text().splitlines()]
    return words(" ".join(line.split(": ", 1)[1] for line in lines))


@pytest.fixture(scope="module")
def heard():
    engine = faster.load(read("whisper", ["faster-whisper"], ["--port", "1"], {}))
    engine._longest_seconds = 45  # four pieces
    samples = recording()
    parts = (samples[at : at + 4_096] for at in range(0, len(samples), 4_096))
    return samples, engine.hear(parts, Wish(words=True), Cancel())


def lost_or_doubled(said):
    """Of about 280 words, those that nobody said and those that were not heard; a wrong one is neither."""
    found = jiwer.process_words(" ".join(known()), " ".join(said))
    return found.insertions + found.deletions


def test_each_word_is_heard_once(heard):
    samples, found = heard
    assert found.duration == pytest.approx(len(samples) / RATE, abs=1e-3)
    said = words(found.text)
    assert jiwer.wer(" ".join(known()), " ".join(said)) <= 0.15, found.text
    assert lost_or_doubled(said) <= 12, found.text
    times = [word for segment in found.segments for word in segment.words]
    assert len(times) == len(found.text.split())
    assert all(a.start <= b.start and a.end <= b.end for a, b in itertools.pairwise(times))
    assert times[-1].end == pytest.approx(len(samples) / RATE, abs=5)


@pytest.mark.parametrize("often", [0, 2])
def test_the_twin_that_hears_ten_seconds_twice_or_not_at_all_is_found(heard, often):
    _, found = heard
    said = []
    for segment in found.segments:
        for word in segment.words:
            said += words(word.text) * (often if 40 <= word.start <= 50 else 1)
    assert lost_or_doubled(said) > 15
