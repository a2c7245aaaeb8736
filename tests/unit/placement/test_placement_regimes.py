"""The table of regimes, from logs of 20 processes made of real figures: whole, shuffled, cut, and with short reads."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from statistics import median

import pytest
from kokoro_log import FIGURES, expected_rows, processes, read_line, with_docker_times, with_own_times

from voxint.services.placement.log_lines import read_line as parse
from voxint.services.placement.regimes import Bounds, Regime, counted, printed, starts_of
from voxint.services.placement.tables import regime_rows, regime_summary, regime_values

SEED = random.SystemRandom().randrange(1 << 32)


@pytest.fixture
def rng():
    print(f"random seed {SEED}")
    return random.Random(SEED)


def timed_rows(starts):
    """The rows as the figures have them: the log's first process by its date alone."""
    rows = [row[:3] for row in regime_rows(starts) if row[1] != "-"]
    return [
        (began[: len("before 2026-08-26")] if began.startswith("before") else began, *rest) for began, *rest in rows
    ]


def lines_of(made, shape=with_docker_times):
    return [line for process in made for line in shape(process.lines)]


def test_the_table_of_the_figures_comes_out(rng):
    made = sorted(processes(rng), key=lambda process: process.lines[0][0])
    starts = starts_of(lines_of(made))
    assert timed_rows(starts) == [tuple(row) for row in expected_rows()]
    assert counted(starts) == {Regime.GPU: 11, Regime.CPU: 9, Regime.UNTIMED: 15}
    summary = " ".join(regime_summary(starts))
    assert "20 starts timed: 11 GPU, 9 CPU." in summary
    assert "15 starts had no read of 1,000 or more characters" in summary
    assert "drawn anew at each start" in summary


def test_without_dockers_times_the_start_is_known_to_be_no_later_than(rng):
    made = sorted(processes(rng), key=lambda process: process.lines[0][0])
    starts = starts_of(lines_of(made, with_own_times))
    rows = timed_rows(starts)
    assert [row[1:] for row in rows] == [row[1:] for row in expected_rows()]
    assert [row[0] for row in rows[1:3]] == ["by 2026-08-27 19:54", "by 2026-08-28 02:17"]
    assert regime_values(starts)[1]["started_at"] is None


def test_processes_in_any_order_give_the_same_table(rng):
    made = processes(rng)
    whole = starts_of(lines_of(sorted(made, key=lambda process: process.lines[0][0])))
    rng.shuffle(made)
    assert starts_of(lines_of(made)) == whole
    every = lines_of(made)
    rng.shuffle(every)
    shuffled = starts_of(every)
    assert [row[:3] for row in regime_rows(shuffled)] == [row[:3] for row in regime_rows(whole)]


def test_a_log_that_begins_in_the_middle_of_a_process_says_before(rng):
    made = sorted(processes(rng, untimed=0), key=lambda process: process.lines[0][0])
    made = made[5:]
    assert FIGURES[5][0] == "2026-09-01 15:49"
    del made[0].lines[:3]  # what uvicorn prints at a start
    starts = starts_of(lines_of(made))
    began, regime, rate, _ = regime_rows(starts)[0]
    assert (began, regime, rate) == ("before 2026-09-01 15:50", "GPU", "883 c/s")
    assert timed_rows(starts)[1:] == [tuple(row) for row in expected_rows()[6:]]


def test_a_cut_that_takes_reads_away_leaves_the_regime(rng):
    made = sorted(processes(rng, untimed=0, short_reads=False), key=lambda process: process.lines[0][0])
    for process in made[1:]:
        del process.lines[4:]  # one read is left of each
    starts = starts_of(lines_of(made))
    assert [start.regime.value for start in starts] == [regime for _, regime, _ in FIGURES]


def test_short_reads_change_no_rate_and_are_counted(rng):
    made = processes(random.Random(SEED), short_reads=False)
    with_short = processes(random.Random(SEED), short_reads=True)
    bare, mixed = starts_of(lines_of(made)), starts_of(lines_of(with_short))
    assert [start.rate for start in bare] == [start.rate for start in mixed]
    assert {start.short_reads for start in bare} == {0}
    assert {start.short_reads for start in mixed} == {2}


def test_a_thousand_characters_are_long_enough_and_one_less_is_not():
    at = datetime(2026, 9, 1, tzinfo=UTC)
    lines = with_docker_times(
        [(at, "INFO:     Started server process [1]"), (at, read_line(999, 12)), (at, read_line(1000, 12))]
    )
    (start,) = starts_of(lines)
    assert [read.characters for read in start.reads] == [1000]
    assert start.short_reads == 1


def test_a_start_without_a_long_read_is_named():
    at = datetime(2026, 9, 1, tzinfo=UTC)
    opens = (at, "INFO:     Started server process [1]")
    silent = starts_of(with_docker_times([opens]))
    short = starts_of(with_docker_times([opens, (at, read_line(500, 0.3))]))
    assert regime_rows(silent) == [("2026-09-01 00:00", "-", "-", "none")]
    assert regime_rows(short) == [("2026-09-01 00:00", "-", "-", "none long enough to tell (1 short one)")]
    assert "No start could be timed." in regime_summary(short)


def test_an_empty_log_tells_nothing():
    assert starts_of([]) == ()
    assert regime_summary(()) == ["The log holds no process start and no read: nothing can be told."]
    assert printed(()) is None


def test_a_process_with_both_speeds_is_no_draw():
    at = datetime(2026, 9, 1, tzinfo=UTC)
    reads = [(at, read_line(5000, 5))] * 3 + [(at, read_line(5000, 60))] * 3
    starts = starts_of(with_docker_times([(at, "INFO:     Started server process [1]"), *reads]))
    assert [start.regime for start in starts] == [Regime.MIXED]
    assert "drawn" not in " ".join(regime_summary(starts))


def test_one_slow_read_among_many_fast_ones_is_no_second_regime():
    at = datetime(2026, 9, 1, tzinfo=UTC)
    reads = [(at, read_line(5000, 5))] * 6 + [(at, read_line(1200, 15))]
    (start,) = starts_of(with_docker_times([(at, "INFO:     Started server process [1]"), *reads]))
    assert start.regime is Regime.GPU


BANNERS = [
    "*************** EP Error ***************",
    "EP Error CUDA failure 2: out of memory when using ['CUDAExecutionProvider']",
    "Falling back to ['CPUExecutionProvider'] and retrying.",
    "[W:onnxruntime:Default, onnxruntime_pybind_state.cc:965] Failed to create CUDAExecutionProvider. Require cuDNN 9.*",
]


@pytest.mark.parametrize("banner", BANNERS)
def test_a_fallback_is_found_in_the_process_that_printed_it(banner):
    at = datetime(2026, 9, 1, tzinfo=UTC)
    later = at + timedelta(hours=1)
    lines = [
        (at, "INFO:     Started server process [1]"),
        (at, banner),
        (later, "INFO:     Started server process [1]"),
    ]
    fell, fine = starts_of(with_docker_times(lines))
    assert fell.fell_back
    assert fell.fell_back in banner
    assert fine.fell_back is None
    assert "it printed" in " ".join(regime_summary((fell, fine)))


def test_a_log_without_a_banner_has_none(rng):
    starts = starts_of(lines_of(processes(rng)))
    assert starts
    assert {start.fell_back for start in starts} == {None}


def test_what_the_log_says_of_the_process_that_runs_now(rng):
    made = sorted(processes(rng, untimed=0), key=lambda process: process.lines[0][0])
    starts = starts_of(lines_of(made))
    now = printed(starts)
    assert now.fell_back is None
    assert round(now.timing.rate) == 75
    # Compared with this very log's processes on the GPU ...
    assert now.timing.gpu_rate == pytest.approx(
        median(rate for _, regime, rate in FIGURES if regime == "GPU"), rel=1e-6
    )
    # ... or with this host's own rate where one is known; and with nothing where there is neither.
    assert printed(starts, gpu_rate=500).timing.gpu_rate == 500
    assert printed(starts[-1:]).timing.gpu_rate is None


def test_the_bounds_are_the_callers():
    at = datetime(2026, 9, 1, tzinfo=UTC)
    lines = with_docker_times([(at, "INFO:     Started server process [1]"), (at, read_line(3000, 10))])
    assert starts_of(lines)[0].regime is Regime.BETWEEN
    assert starts_of(lines, Bounds(350, 700))[0].regime is Regime.CPU
    assert starts_of(lines, Bounds(100, 300))[0].regime is Regime.GPU
    assert [Bounds().regime(rate) for rate in (199.9, 200, 399.9, 400)] == [
        Regime.CPU,
        Regime.BETWEEN,
        Regime.BETWEEN,
        Regime.GPU,
    ]


@pytest.mark.parametrize(
    ("raw", "text", "at"),
    [
        ("2026-09-24T20:00:01.123456789Z hello\n", "hello", datetime(2026, 9, 24, 20, 0, 1, 123456, tzinfo=UTC)),
        ("2026-09-24T22:00:01+02:00 hello", "hello", datetime(2026, 9, 24, 20, 0, 1, tzinfo=UTC)),
        ("2026-09-24 20:00:01,250:INFO:x:hello", "INFO:x:hello", datetime(2026, 9, 24, 20, 0, 1, 250000, tzinfo=UTC)),
        ("speaches-1  | 2026-09-24T20:00:01Z hello", "hello", datetime(2026, 9, 24, 20, 0, 1, tzinfo=UTC)),
        ("speaches-1  | hello", "hello", None),
        ("hello", "hello", None),
        ("2026-13-44T99:00:01Z hello", "hello", None),
        ("{not json", "{not json", None),
        ('{"a": 1}', '{"a": 1}', None),
    ],
)
def test_the_shapes_of_a_line(raw, text, at):
    line = parse(raw)
    assert (line.text, line.at) == (text, at)


def test_dockers_own_json_file_is_read():
    raw = json.dumps({"log": read_line(5000, 5) + "\n", "stream": "stderr", "time": "2026-09-24T20:00:01.5Z"})
    line = parse(raw)
    assert line.at == datetime(2026, 9, 24, 20, 0, 1, 500000, tzinfo=UTC)
    (start,) = starts_of([raw])
    assert start.cut
    assert start.rate == 1000


def test_a_read_that_took_no_time_is_no_read():
    assert starts_of([read_line(5000, 0)]) == ()


def test_as_values(rng):
    made = sorted(processes(rng, untimed=1), key=lambda process: process.lines[0][0])
    values = regime_values(starts_of(lines_of(made)))
    assert values[0]["started_at"] is None
    assert values[0]["started_before"].startswith("2026-08-26T00:01:42")
    assert values[1] | {"reads": 0} == {
        "started_at": "2026-08-27T19:53:00Z",
        "started_before": None,
        "regime": "cpu",
        "characters_per_second": 130.0,
        "reads": 0,
        "short_reads": 2,
        "fell_back": None,
    }
    assert [value["regime"] for value in values].count(None) == 1
    json.dumps(values, allow_nan=False)
