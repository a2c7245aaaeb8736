"""The journal: the newest complete record is the one, a torn write takes nothing away, and damage is never guessed over."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from voxint_broker.journal import NAMES, Journal
from voxint_broker.record import JournalError, State, fresh

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def record(turn, **changes):
    return replace(fresh(NOON), turn=turn, **changes)


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path / "state")
    made.open()
    yield made
    made.close()


def again(journal):
    return Journal(journal._folder).read()


def files(journal):
    return [journal._folder / name for name in NAMES]


def test_what_was_written_last_is_read(journal):
    assert journal.read() is None
    for turn in range(5):
        journal.write(record(turn))
        assert again(journal) == record(turn)


def test_the_files_never_change_their_size_and_take_turns(journal):
    sizes, places = set(), []
    for turn in range(4):
        before = [path.read_bytes() for path in files(journal)] if turn else [b"", b""]
        journal.write(record(turn))
        after = [path.read_bytes() for path in files(journal)]
        sizes |= {len(data) for data in after}
        places.append([old != new for old, new in zip(before, after, strict=True)])
    assert len(sizes) == 1
    assert places[1:] == [[True, False], [False, True], [True, False]]


@pytest.mark.parametrize("kept", [0, 1, 100, 400])
def test_a_torn_write_leaves_the_record_before_it(journal, kept):
    journal.write(record(1))
    journal.write(record(2))
    newest = max(files(journal), key=lambda path: json.loads(path.read_text())["number"])
    data = newest.read_bytes()
    newest.write_bytes(data[:kept] + b"\0" * (len(data) - kept))
    assert again(journal) == record(1)
    reopened = Journal(journal._folder)
    reopened.read()
    reopened.write(record(3))
    assert again(journal) == record(3)


def test_a_changed_byte_is_seen(journal):
    journal.write(record(1, state=State.HELD))
    journal.write(record(2, state=State.FREE))
    newest = max(files(journal), key=lambda path: json.loads(path.read_text())["number"])
    newest.write_bytes(newest.read_bytes().replace(b'"free"', b'"held"'))
    assert again(journal).turn == 1


def test_the_first_write_torn_is_no_record(journal):
    journal.write(record(1))
    (written,) = [path for path in files(journal) if path.read_text().strip()]
    written.write_bytes(written.read_bytes()[:300])
    assert again(journal) is None


@pytest.mark.parametrize("damage", [b"{", b"\xff\xfe", b"[]", b"null", b'{"number": 1}', b"[" * 40_000])
def test_damage_in_both_files_is_told_and_not_guessed_over(journal, damage):
    journal.write(record(1))
    journal.write(record(2))
    for path in files(journal):
        path.write_bytes(damage)
    with pytest.raises(JournalError, match=r"cannot read the journal in .*journal-0\.json.*journal-1\.json"):
        again(journal)


def test_a_file_that_is_gone_beside_a_broken_one_is_damage(journal):
    journal.write(record(1))
    journal.write(record(2))
    files(journal)[0].unlink()
    files(journal)[1].write_bytes(b"{")
    with pytest.raises(JournalError):
        again(journal)


def test_a_record_of_another_version_is_told(journal, monkeypatch):
    journal.write(record(1))
    monkeypatch.setattr("voxint_broker.journal.to_json", lambda _record: {"version": 7})
    journal.write(record(2))
    with pytest.raises(JournalError, match="its version is 7"):
        again(journal)


def test_a_long_record_makes_the_file_longer_and_a_short_one_fits_again(journal):
    long = record(1, reason="é" * 9000)
    journal.write(long)
    assert again(journal) == long
    for turn in (2, 3):
        journal.write(record(turn))
        assert again(journal) == record(turn)


def test_a_write_that_fails_leaves_the_record_before_it_also_after_a_restart(journal, monkeypatch):
    journal.write(record(1))
    journal.write(record(2))

    def fails(_fd):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fails)
        with pytest.raises(JournalError, match="Input/output error"):
            journal.write(record(3))
    assert again(journal) == record(2)
    journal.write(record(4))
    assert again(journal) == record(4)


def test_a_file_that_was_taken_away_is_made_again(journal):
    journal.write(record(1))
    for path in files(journal):
        path.unlink()
    journal.write(record(2))
    assert again(journal) == record(2)


def test_one_process_at_a_time(journal):
    with pytest.raises(JournalError, match="another broker uses"):
        Journal(journal._folder).open()
    journal.close()
    other = Journal(journal._folder)
    other.open()
    other.close()
