import numpy as np
import pytest

from voxint_models.voices import clusters, turns
from voxint_models.voices.clusters import cluster, in_order
from voxint_models.voices.ge2e import unit
from voxint_models.voices.speech import STEP, Span, join
from voxint_models.voices.turns import Turn, joined, speakers, split, steady, window_starts


def voices(seed, counts, spread=0.25, dimension=64):
    """Unit vectors about as many centres as `counts` has, that lie at right angles; and whose each one is."""
    rng = np.random.default_rng(seed)
    whose = np.repeat(np.arange(len(counts)), counts)
    noise = rng.normal(0, 1, (len(whose), dimension))
    noise[:, : len(counts)] = 0
    made = np.eye(dimension)[whose] + spread * noise / np.linalg.norm(noise, axis=1, keepdims=True)
    order = rng.permutation(len(whose))
    return unit(made[order].astype(np.float32)), whose[order]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("counts", [(1,), (7,), (5, 5), (20, 3, 9), (4, 4, 4, 4)])
def test_groups_that_are_apart_are_found(seed, counts):
    vectors, whose = voices(seed, counts)
    assert cluster(vectors, 0.6).tolist() == in_order(whose).tolist()


def test_the_average_is_over_pairs_not_over_groups():
    """Three against one: the joined group's likeness is the mean of its three, whatever the order of joining."""
    a, b = np.array([1.0, 0]), np.array([0, 1.0])
    odd = unit((0.8 * a + 0.6 * b).astype(np.float32))
    vectors = np.stack([a, a, b, odd]).astype(np.float32)
    # odd joins a, a at 0.8; that group's likeness with b is (0 + 0 + 0.6) / 3 = 0.2
    assert len(set(cluster(vectors, 0.21).tolist())) == 2
    assert len(set(cluster(vectors, 0.19).tolist())) == 1


@pytest.mark.parametrize(
    ("fewest", "most", "found"), [(1, None, 3), (1, 2, 2), (1, 1, 1), (5, None, 5), (2, 9, 3), (50, None, 12)]
)
def test_the_limits_on_groups_are_kept(fewest, most, found):
    vectors, _ = voices(1, (4, 4, 4))
    assert len(set(cluster(vectors, 0.6, fewest, most).tolist())) == found


def test_none_and_one():
    assert cluster(np.zeros((0, 8), np.float32), 0.6).tolist() == []
    assert cluster(np.ones((1, 8), np.float32), 0.6, 2, 3).tolist() == [0]


def test_many_vectors_are_clustered_by_a_sample(monkeypatch):
    monkeypatch.setattr(clusters, "MOST_VECTORS", 40)
    vectors, whose = voices(3, (300, 200))
    assert cluster(vectors, 0.6).tolist() == in_order(whose).tolist()


def test_a_group_too_small_for_a_person_is_given_away_unless_it_is_asked_for():
    vectors, _ = voices(2, (10, 8, 1))
    assert len(speakers(vectors, 1, None)) == 2
    assert len(speakers(vectors, 3, None)) == 3
    few, _ = voices(2, (1, 1))
    assert len(speakers(few, 1, None)) == 1


def test_speech_is_joined_over_short_gaps_and_clicks_are_dropped():
    second = int(1 / STEP)
    likely = [0.0] * second + [0.9] * second + [0.1] * 4 + [0.9] * second + [0.0] * second + [0.9] * 3 + [0.0] * 10
    found = join(likely, len(likely) * STEP)
    assert len(found) == 1
    assert found[0].start == pytest.approx(1.0, abs=0.1)
    assert found[0].end == pytest.approx(3.1, abs=0.15)
    assert join([0.9] * second, second * STEP) == [Span(0.0, second * STEP)]
    assert join([], 0.0) == []


def test_a_doubtful_middle_does_not_cut_a_word():
    likely = [0.9] * 10 + [0.4] * 20 + [0.9] * 10
    assert len(join(likely, 2)) == 1
    assert join([0.4] * 40, 2) == []


def test_one_odd_window_changes_nothing_and_a_real_change_does():
    for_a, for_b = [0.8, 0.5], [0.5, 0.8]
    odd = np.array([for_a, for_a, [0.6, 0.7], for_a, for_a], np.float32)
    assert steady(odd).tolist() == [0, 0, 0, 0, 0]
    change = np.array([for_a, for_a, for_b, for_b, for_b], np.float32)
    assert steady(change).tolist() == [0, 0, 1, 1, 1]
    assert steady(np.array([for_b], np.float32)).tolist() == [1]


def test_a_span_is_split_where_the_speaker_changes():
    span = Span(10.0, 14.0)
    starts = window_starts(span)
    assert starts == pytest.approx([10.0, 10.4, 10.8, 11.2, 11.6, 12.0, 12.4])
    found = split(span, starts, np.array([0, 0, 0, 1, 1, 1, 1]))
    assert [turn.speaker for turn in found] == [0, 1]
    assert found[0].end == found[1].start == pytest.approx((10.8 + 11.2 + 1.6) / 2)
    assert (found[0].start, found[1].end) == (10.0, 14.0)
    assert window_starts(Span(0, 1.5)) == []


def test_turns_of_one_speaker_are_joined_over_a_short_pause():
    one = [Turn(0, 1, 0), Turn(1.3, 2, 0), Turn(2.1, 3, 1), Turn(3.6, 4, 1)]
    assert joined(one) == [Turn(0, 2, 0), Turn(2.1, 3, 1), Turn(3.6, 4, 1)]


def test_checks_reach_the_long_loops():
    class StopError(Exception):
        pass

    def check():
        raise StopError

    class Speech:
        def spans(self, samples, check):
            check()
            return []

    with pytest.raises(StopError):
        turns.TurnFinder(Speech(), None).turns(np.zeros(10, np.float32), check=check)
