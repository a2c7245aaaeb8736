"""Recordings from addresses, the watched folder, and what is deleted: nothing private is asked, nothing kept is lost."""

from __future__ import annotations

import ipaddress
import os
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from scripted_services import Raw
from sqlalchemy import text

from voxint.recordings import inbox as inbox_module
from voxint.recordings import waste
from voxint.recordings.address import name_in, url_for_people
from voxint.recordings.errors import NotAddedError
from voxint.recordings.inbox import Inbox
from voxint.recordings.lifecycle import NotPossibleError
from voxint.services.download import AddressRefusedError, Rules, fetch, is_public, look
from voxint.services.exchange import ExchangeError

ANY = Rules(most_bytes=1 << 20, total=timedelta(seconds=10), allowed=lambda _: True)
FILE = "/v1/models"  # the path of the scripted server that a test may answer as it likes


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "192.168.1.1",
        "172.16.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fd00::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "ff02::1",
    ],
)
def test_no_private_address_is_public(address):
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8"])
def test_public_addresses_are(address):
    assert is_public(ipaddress.ip_address(address))


def test_a_recording_is_fetched_from_an_address(make_world, make_wav):
    world = make_world(URL_ALLOW_PRIVATE="true")
    path = make_wav()
    world.services.always["models"] = Raw(200, path.read_bytes(), {"Content-Type": "audio/wav"})
    run = world.runs.add(world.services.url + FILE + "?token=s3cret", title=None)
    assert (run.source_kind, run.title) == ("url", "models")
    world.finish()
    run = world.runs.get(run.id)
    assert (run.status, run.duration_seconds) == ("done", 10.0)
    assert "s3cret" not in str(world.runs.results(run.id)["acquire"])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "2130706433", "0x7f000001", "127.1"])
def test_this_machine_is_not_asked(world, host):
    port = world.services.url.rsplit(":", 1)[1]
    with pytest.raises(NotAddedError, match=r"not on the public internet|not known|cannot be used"):
        world.runs.add(f"http://{host}:{port}{FILE}")
    assert world.services.asked["models"] == []


def test_a_name_with_one_private_address_is_not_asked(services):
    rules = Rules(
        1 << 20,
        timedelta(seconds=5),
        resolver=lambda _host, _port: [ipaddress.ip_address("8.8.8.8"), ipaddress.ip_address("127.0.0.1")],
    )
    with pytest.raises(AddressRefusedError, match="public internet"):
        look("http://mixed.example/a.wav", rules)


def test_a_name_is_resolved_once_and_that_address_is_asked(services):
    """A name that points elsewhere the second time gets no second time."""
    asked = []

    def resolver(host, port):
        asked.append(host)
        return [ipaddress.ip_address("127.0.0.1")] if len(asked) == 1 else [ipaddress.ip_address("127.0.0.9")]

    rules = Rules(1 << 20, timedelta(seconds=5), allowed=lambda a: str(a) == "127.0.0.1", resolver=resolver)
    services.always["models"] = Raw(200, b"x", {"Content-Type": "audio/wav"})
    port = services.url.rsplit(":", 1)[1]
    assert look(f"http://rebind.example:{port}{FILE}", rules).length == 1
    assert asked == ["rebind.example"]
    assert services.asked["models"][0]["headers"]["Host"] == f"rebind.example:{port}"


@pytest.mark.parametrize(
    "target",
    ["http://127.0.0.2:1/x", "http://169.254.169.254/latest", "file:///etc/passwd", "ftp://127.0.0.1/x", "//[", ""],
)
def test_every_redirect_is_looked_at(services, target):
    rules = Rules(1 << 20, timedelta(seconds=5), allowed=lambda address: str(address) == "127.0.0.1")
    services.always["models"] = Raw(302, b"", {"Location": target})
    with pytest.raises(ExchangeError):
        look(services.url + FILE, rules)


def test_redirects_end(services):
    services.always["models"] = Raw(302, b"", {"Location": services.url + FILE})
    with pytest.raises(AddressRefusedError, match="more than 5 times"):
        look(services.url + FILE, ANY)
    assert len(services.asked["models"]) == 6


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Raw(200, b"<html>", {"Content-Type": "text/html; charset=utf-8"}), "web page"),
        (Raw(404, b"", {"Content-Type": "audio/wav"}), "404"),
        (Raw(200, b"", {"Content-Type": "audio/wav"}), "empty"),
        (Raw(200, b"x" * ((1 << 20) + 1), {"Content-Type": "audio/wav"}), "allowed"),
    ],
)
def test_what_is_no_recording_is_refused_when_it_is_added(services, answer, words):
    services.always["models"] = answer
    with pytest.raises(ExchangeError, match=words):
        look(services.url + FILE, ANY)


@pytest.mark.parametrize(
    "url", ["http://user:pw@127.0.0.1/x", "http://", "http:///x", "http://a:99999/x", "http://[::1/x"]
)
def test_addresses_that_are_none(url):
    with pytest.raises(ExchangeError):
        look(url, ANY)


def test_half_a_file_is_no_file(services):
    services.always["models"] = Raw(200, b"x" * 1000, {"Content-Type": "audio/wav"}, half=True)
    got = []
    with pytest.raises(ExchangeError):
        fetch(services.url + FILE, ANY, got.append)


def test_a_slow_fetch_ends_with_its_limit_and_with_the_claim(services):
    services.always["models"] = Raw(200, b"x" * 200, {"Content-Type": "audio/wav"}, drip=0.2)
    short = Rules(1 << 20, timedelta(seconds=0.6), allowed=lambda _: True)
    begun = time.monotonic()
    with pytest.raises(ExchangeError, match="longer than"):
        fetch(services.url + FILE, short, lambda _: None)
    assert time.monotonic() - begun < 15
    lost = threading.Event()
    threading.Timer(0.3, lost.set).start()
    with pytest.raises(ExchangeError, match="taken back"):
        fetch(services.url + FILE, ANY, lambda _: None, lost)


def test_addresses_are_shown_without_secrets():
    assert url_for_people("https://u:p@h.example:8443/a/b.mp3?token=x#y") == "https://h.example:8443/a/b.mp3"
    assert name_in("https://h.example/a/My%20call.mp3?x=1") == "My call"
    assert name_in("https://h.example/") == "h.example"


@pytest.fixture
def folder(world):
    path = world.media / "inbox"
    path.mkdir(parents=True)
    return path


def quiet(monkeypatch):
    monkeypatch.setattr(inbox_module, "QUIET_SECONDS", 0.3)


def test_a_file_that_still_grows_is_left_alone(world, folder, make_wav, monkeypatch):
    inbox = Inbox(world.runs, world.media)
    whole = make_wav("x.wav").read_bytes()
    growing = folder / "call.wav"
    growing.touch()
    assert inbox.sweep() == 0
    for start in range(0, len(whole), len(whole) // 3 + 1):
        with growing.open("ab") as file:
            file.write(whole[start : start + len(whole) // 3 + 1])
        os.utime(growing, (1, 1))  # as a copy that keeps the original's times
        assert inbox.sweep() == 0
    quiet(monkeypatch)
    time.sleep(0.4)
    assert inbox.sweep() == 1
    assert inbox.sweep() == 0
    run = world.runs.list()[0]
    assert (run.title, run.duration_seconds, run.source_kind) == ("call", 10.0, "upload")
    world.finish()
    assert world.runs.get(run.id).status == "done"
    assert not growing.exists()


@pytest.mark.parametrize("name", ["a.wav.filepart", "a.part", ".hidden.wav", "a.CRDOWNLOAD"])
def test_names_of_unfinished_files_are_left_alone(world, folder, make_wav, monkeypatch, name):
    quiet(monkeypatch)
    make_wav("x.wav").rename(folder / name)
    time.sleep(0.4)
    assert Inbox(world.runs, world.media).sweep() == 0
    assert (folder / name).exists()


def test_many_who_look_at_once_add_a_file_once(world, folder, make_wav, monkeypatch):
    quiet(monkeypatch)
    make_wav("x.wav").rename(folder / "call.wav")
    time.sleep(0.4)
    counts = []
    threads = [threading.Thread(target=lambda: counts.append(Inbox(world.runs, world.media).sweep())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 1
    assert len(world.runs.list()) == 1


def test_what_is_no_recording_is_put_aside_with_the_reason(world, folder, monkeypatch):
    quiet(monkeypatch)
    (folder / "page.mp4").write_text("<html>")
    time.sleep(0.4)
    assert Inbox(world.runs, world.media).sweep() == 0
    assert (folder / "refused" / "page.mp4").exists()
    assert "web page" in (folder / "refused" / "page.mp4.why.txt").read_text(encoding="utf-8")


def test_what_a_dead_worker_had_taken_is_taken_up_again(world, folder, make_wav, monkeypatch):
    quiet(monkeypatch)
    monkeypatch.setattr(inbox_module, "TAKEN_SECONDS", 0.2)
    place = folder / ".taken" / "abc"
    place.mkdir(parents=True)
    make_wav("x.wav").rename(place / "call.wav")
    time.sleep(0.4)
    inbox = Inbox(world.runs, world.media)
    inbox.sweep()
    time.sleep(0.4)
    assert inbox.sweep() + len(world.runs.list()) >= 1
    assert len(world.runs.list()) == 1


def test_what_is_taken_up_again_takes_no_other_files_place(world, folder, make_wav, monkeypatch):
    """A worker died with call.wav in its hands, and meanwhile somebody put another call.wav into the folder."""
    quiet(monkeypatch)
    monkeypatch.setattr(inbox_module, "TAKEN_SECONDS", 0.2)
    place = folder / ".taken" / "abc"
    place.mkdir(parents=True)
    make_wav("x.wav", seconds=10.0).rename(place / "call.wav")
    make_wav("y.wav", seconds=5.0).rename(folder / "call.wav")
    time.sleep(0.4)
    inbox = Inbox(world.runs, world.media)
    for _ in range(3):
        inbox.sweep()
        time.sleep(0.4)
    assert sorted(run.duration_seconds for run in world.runs.list()) == [5.0, 10.0]
    world.finish()
    assert {run.status for run in world.runs.list()} == {"done"}
    time.sleep(0.4)
    inbox.sweep()
    assert list((folder / ".taken").iterdir()) == []


def test_a_file_that_cannot_be_handled_keeps_no_other_out(world, folder, make_wav, monkeypatch):
    quiet(monkeypatch)
    usual = Inbox._refuse

    def refuse(inbox, ours, why):
        if ours.name.startswith("a"):
            raise PermissionError(13, "Permission denied")
        usual(inbox, ours, why)

    monkeypatch.setattr(Inbox, "_refuse", refuse)
    (folder / "a.mp4").write_text("<html>")
    make_wav("x.wav").rename(folder / "call.wav")
    time.sleep(0.4)
    assert Inbox(world.runs, world.media).sweep() == 1
    assert [run.title for run in world.runs.list()] == ["call"]


def test_names_of_refused_files_fit_every_file_system(world, folder, monkeypatch):
    """The same name twice, of 255 bytes, and one that is not UTF-8: with the mark that tells them apart too long by 7."""
    quiet(monkeypatch)
    inbox = Inbox(world.runs, world.media)
    long = "\u00fc" * 125 + "x.mp4"
    odd = os.fsdecode(b"caf\xe9.mp4")
    for _ in range(2):
        for name in (long, odd):
            (folder / name).write_text("<html>")
        time.sleep(0.4)
        assert inbox.sweep() == 0
    assert list((folder / ".taken").iterdir()) == []
    assert len(list((folder / "refused").glob("*.mp4"))) == 4
    assert len(list((folder / "refused").glob("*.why.txt"))) == 4


def test_a_name_that_is_not_utf_8_is_no_recordings_source(world, folder, monkeypatch):
    monkeypatch.setattr(inbox_module, "TAKEN_SECONDS", 0.2)
    place = folder / ".taken" / "abc"
    place.mkdir(parents=True)
    (place / os.fsdecode(b"caf\xe9.mp4")).write_text("<html>")
    time.sleep(0.4)
    assert Inbox(world.runs, world.media).sweep() == 0
    assert len(list((folder / "refused").glob("*.mp4"))) == 1


def test_a_link_out_of_the_folder_is_not_followed(world, folder, make_wav, monkeypatch):
    """What it leads to would be a recording."""
    quiet(monkeypatch)
    outside, link = make_wav("outside.wav"), folder / "link.wav"
    link.symlink_to(outside)
    time.sleep(0.4)
    inbox = Inbox(world.runs, world.media)
    assert inbox.sweep() == 0
    assert link.is_symlink()
    outside.rename(folder / "outside.wav")
    time.sleep(0.4)
    assert inbox.sweep() == 1


def test_a_recording_is_deleted_with_its_files(world, make_wav):
    run = world.runs.add(make_wav())
    world.finish()
    assert run.folder.is_dir()
    world.runs.delete(run.id)
    assert world.runs.get(run.id) is None
    assert not run.folder.exists()
    assert not any((world.media / waste.FOLDER).iterdir())
    with pytest.raises(NotPossibleError, match="no recording"):
        world.runs.delete(run.id)


def test_what_is_worked_on_is_not_deleted(world, make_wav):
    from voxint.gpu_phase.model import Lane

    run = world.runs.add(make_wav())
    assert world.parts.gate.claim(Lane.GPU)
    with pytest.raises(NotPossibleError, match="being worked on"):
        world.runs.delete(run.id)
    assert world.runs.get(run.id) is not None


def test_files_that_cannot_be_taken_away_are_said_and_the_recording_stays(world, make_wav, monkeypatch):
    def refused(_media_root, _folder):
        raise PermissionError(13, "Permission denied")

    run = world.runs.add(make_wav())
    world.finish()
    with monkeypatch.context() as patch:
        patch.setattr(waste, "put", refused)
        with pytest.raises(NotPossibleError, match="cannot take the files of recording 1 away: Permission denied"):
            world.runs.delete(run.id)
    assert world.runs.get(run.id).status == "done"
    world.runs.delete(run.id)
    assert world.runs.get(run.id) is None


def test_a_deletion_that_was_cut_off_loses_nothing_and_leaves_nothing(world, make_wav):
    kept = world.runs.add(make_wav())
    world.finish()
    waste.put(world.media, f"runs/{kept.folder.name}")  # and then the transaction was rolled back
    (world.media / waste.FOLDER / "77-abc").mkdir()  # and here it was committed, and then the power went
    assert not kept.folder.exists()
    waste.empty(world.engine, world.media)
    assert kept.folder.is_dir()
    assert not (world.media / waste.FOLDER / "77-abc").exists()


def test_old_recordings_go_and_their_sources_before_them(make_world, make_wav):
    world = make_world(KEEP_RUNS_DAYS="30", KEEP_SOURCE="false")
    old, new = world.runs.add(make_wav("a.wav")), world.runs.add(make_wav("b.wav", hertz=300))
    world.finish()
    with world.engine.begin() as connection:
        connection.execute(
            text("UPDATE run SET finished_at = now() - interval '31 days' WHERE id = :id"), {"id": old.id}
        )
    world.parts.upkeep.run()
    assert world.runs.get(old.id) is None
    assert not old.folder.exists()
    assert new.folder.is_dir()
    left = {path.name.split("-")[0] for path in new.folder.iterdir()}
    assert left == {"audio", "transcript"}
    assert Path(world.runs.get(new.id).source).exists()  # the user's own file is not ours to delete


def test_nothing_is_deleted_by_default(world, make_wav):
    run = world.runs.add(make_wav())
    world.finish()
    world.shift(10 * 365 * 86400)
    world.parts.upkeep.run()
    assert any(path.name.startswith("source-") for path in run.folder.iterdir())


def test_one_part_that_the_disk_refuses_keeps_no_other_from_its_turn(make_world, make_wav, monkeypatch):
    """An inbox that cannot be read, and an old recording whose folder cannot be moved: the next one goes all the same."""
    world = make_world(KEEP_RUNS_DAYS="30", KEEP_SOURCE="false", INBOX_ENABLED="true")
    stuck, old, new = (
        world.runs.add(make_wav(f"{name}.wav", hertz=hertz)) for name, hertz in (("a", 300), ("b", 400), ("c", 500))
    )
    world.finish()
    with world.engine.begin() as connection:
        for number, run in ((32, stuck), (31, old)):
            connection.execute(
                text("UPDATE run SET finished_at = now() - make_interval(days => :days) WHERE id = :id"),
                {"id": run.id, "days": number},
            )
    usual = waste.put

    def put(media_root, folder):
        if folder.startswith(f"runs/{stuck.id}-"):
            raise PermissionError(13, "Permission denied")
        usual(media_root, folder)

    def no_inbox(_inbox):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(waste, "put", put)
    monkeypatch.setattr(Inbox, "sweep", no_inbox)
    assert world.parts.upkeep.run() == 0
    assert [world.runs.get(run.id) is None for run in (stuck, old, new)] == [False, True, False]
    assert not any(path.name.startswith("source-") for path in new.folder.iterdir())


def test_sources_that_are_no_longer_kept_go_however_many_there_are(make_world, make_wav, monkeypatch):
    """KEEP_SOURCE was switched off later: round by round the older ones go too."""
    from voxint.recordings import upkeep

    monkeypatch.setattr(upkeep, "AT_ONCE", 2)
    world = make_world(KEEP_SOURCE="false")
    runs = [world.runs.add(make_wav(f"{number}.wav", seconds=1.0, hertz=300 + 50 * number)) for number in range(5)]
    world.finish()

    def sources():
        return [any(path.name.startswith("source-") for path in run.folder.iterdir()) for run in runs]

    assert all(sources())
    for _ in range(3):
        world.parts.upkeep.run()
    assert not any(sources())
