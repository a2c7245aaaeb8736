"""A speaches log made from the figures of 20 real processes: starts, reads and rates."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

FIGURES = [
    # process start (UTC), regime, characters a second over reads of 1,000 and more characters
    ("before 2026-08-26", "GPU", 574),
    ("2026-08-27 19:53", "CPU", 130),
    ("2026-08-28 02:16", "GPU", 741),
    ("2026-08-28 04:11", "GPU", 995),
    ("2026-08-29 03:08", "CPU", 104),
    ("2026-09-01 15:49", "GPU", 883),
    ("2026-09-03 13:52", "GPU", 1056),
    ("2026-09-06 19:39", "CPU", 142),
    ("2026-09-10 02:40", "GPU", 1055),
    ("2026-09-11 01:00", "CPU", 116),
    ("2026-09-14 10:43", "GPU", 1054),
    ("2026-09-15 04:54", "GPU", 1031),
    ("2026-09-15 12:42", "GPU", 779),
    ("2026-09-15 18:40", "GPU", 1011),
    ("2026-09-20 06:34", "GPU", 1026),
    ("2026-09-21 05:47", "CPU", 144),
    ("2026-09-21 20:47", "CPU", 120),
    ("2026-09-23 22:36", "CPU", 134),
    ("2026-09-24 18:50", "CPU", 101),
    ("2026-09-24 20:00", "CPU", 75),
]
LOG_BEGINS = datetime(2026, 8, 26, 0, 0, 12, tzinfo=UTC)


@dataclass
class Process:
    """One process's lines, each with its moment."""

    lines: list


def moment(text):
    return datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=UTC)


def processes(rng, *, untimed=15, short_reads=True):
    """The 20 processes of the figures and some without a long read, each cut short by the next one."""
    starts = [LOG_BEGINS, *(moment(start) for start, _, _ in FIGURES[1:])]
    made = [
        Process(_lines(rng, at, rate, begins=number > 0, short_reads=short_reads))
        for number, (at, (_, _, rate)) in enumerate(zip(starts, FIGURES, strict=True))
    ]
    for number in range(untimed):
        # 15 distinct evenings between the figures' starts
        at = datetime(2026, 8, 30, 21, 7, tzinfo=UTC) + timedelta(hours=7 * number)
        made.append(Process(_lines(rng, at, None, begins=True, short_reads=short_reads)))
    return made


def _lines(rng, at, rate, *, begins, short_reads):
    lines = []
    if begins:
        lines += [
            (at, "INFO:     Started server process [1]"),
            (at + timedelta(milliseconds=40), "INFO:     Waiting for application startup."),
            (at + timedelta(milliseconds=60), "INFO:     Application startup complete."),
        ]
    at += timedelta(seconds=90)
    if rate is not None:
        lengths = [rng.randint(1000, 23000) for _ in range(rng.randint(1, 6))]
        noise = [rng.uniform(0.85, 1.15) for _ in lengths]
        seconds = [length / rate * factor for length, factor in zip(lengths, noise, strict=True)]
        scale = sum(lengths) / rate / sum(seconds)  # the reads differ, their whole has the figure's rate
        for length, took in zip(lengths, seconds, strict=True):
            lines.append((at, read_line(length, took * scale)))
            at += timedelta(seconds=200)
    if short_reads:
        # A test suite's 500 times the same letter: hardly a phoneme, and so "fast" even on the CPU.
        lines.append((at, read_line(500, 0.31)))
        lines.append((at + timedelta(seconds=5), read_line(999, 11.9)))
    return lines


def read_line(characters, seconds):
    return f"INFO:speaches.executors.kokoro.utils:generate_audio:66:Generated audio for {characters} characters in {seconds}s"


def with_docker_times(lines):
    """As `docker logs -t` prints them: nine digits of a second, and Z."""
    return [f"{at:%Y-%m-%dT%H:%M:%S.%f}000Z {text}\n" for at, text in lines]


def with_own_times(lines):
    """As `docker logs` prints them: the program's own times, and none on uvicorn's lines."""
    return [
        f"{text}\n" if "INFO:     " in text else f"{at:%Y-%m-%d %H:%M:%S},{at:%f}"[:-3] + f":{text}\n"
        for at, text in lines
    ]


def expected_rows():
    return [(start, regime, f"{rate:,} c/s") for start, regime, rate in FIGURES]
