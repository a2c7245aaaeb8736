"""Fetching from a hub of our own on loopback, which may be cut off, send on, refuse, or give another file."""

import hashlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from voxint_models.serving.errors import WeightsMissingError
from voxint_models.weights import __main__ as command
from voxint_models.weights import catalogue, store
from voxint_models.weights.catalogue import CATALOGUE, File, Weights
from voxint_models.weights.fetch import FetchError, Source, fetch

BIG = bytes(range(256)) * 4000
SMALL = b"{}"


class Hub(ThreadingHTTPServer):
    """Gives the files, and remembers what was asked."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"config.json": SMALL, "deep/model.bin": BIG}
        self.asked = []
        self.wants_token = self.cut_at = self.send_on = None
        self.ranges = True

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        hub, headers = self.server, dict(self.headers)
        hub.asked.append((self.path, headers.get("Authorization"), headers.get("Range")))
        if hub.wants_token and headers.get("Authorization") != f"Bearer {hub.wants_token}":
            self.send_error(401)
            return
        if hub.send_on:
            self.send_response(302)
            self.send_header("Location", hub.send_on + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = hub.files.get(self.path.split("/resolve/r1/")[-1])
        if data is None:
            self.send_error(404)
            return
        first = int(headers["Range"][6:-1]) if "Range" in headers and hub.ranges else 0
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(data) - first))
        self.end_headers()
        self.wfile.write(data[first : hub.cut_at])

    def log_message(self, *args):
        pass


@pytest.fixture
def hubs():
    made = []

    def start():
        hub = Hub()
        thread = threading.Thread(target=hub.serve_forever, args=(0.02,))
        thread.start()
        made.append((hub, thread))
        return hub

    yield start
    for hub, thread in made:
        hub.shutdown()
        hub.server_close()
        thread.join(5)


def weights(**changes):
    files = tuple(
        File(path, len(data), hashlib.sha256(data).hexdigest())
        for path, data in (("config.json", SMALL), ("deep/model.bin", BIG))
    )
    given = {
        "service": "whisper",
        "name": "us/tiny",
        "revision": "r1",
        "licence": "MIT",
        "page": "PAGE",
        "files": files,
    }
    return Weights(**given | changes)


def test_everything_is_fetched_once_and_then_is_there(hubs, tmp_path):
    hub, come = hubs(), []
    folder = fetch(weights(), tmp_path, Source(hub.url), come.append)
    assert folder == tmp_path / "us--tiny@r1"
    assert (folder / "deep" / "model.bin").read_bytes() == BIG
    assert sum(come) == len(BIG) + len(SMALL)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".fetching", "us--tiny@r1"]
    assert [asked[0] for asked in hub.asked] == [
        "/us/tiny/resolve/r1/config.json",
        "/us/tiny/resolve/r1/deep/model.bin",
    ]
    fetch(weights(), tmp_path, Source(hub.url))
    assert len(hub.asked) == 2, "what is there is not asked for again"


@pytest.mark.parametrize("ranges", [True, False])
def test_a_fetch_that_was_cut_off_goes_on(hubs, tmp_path, ranges):
    hub = hubs()
    hub.cut_at, hub.ranges = 600_000, ranges
    with pytest.raises(FetchError, match="run the command again"):
        fetch(weights(), tmp_path, Source(hub.url))
    assert not (tmp_path / "us--tiny@r1").exists()
    hub.cut_at = None
    folder = fetch(weights(), tmp_path, Source(hub.url))
    assert (folder / "deep" / "model.bin").read_bytes() == BIG
    assert hub.asked[-1][2] == "bytes=600000-"


@pytest.mark.parametrize("data", [BIG[:-1] + b"x", BIG + b"more"])
def test_another_file_is_not_kept(hubs, tmp_path, data):
    hub = hubs()
    hub.files["deep/model.bin"] = data
    with pytest.raises(FetchError, match="not the file that was expected"):
        fetch(weights(), tmp_path, Source(hub.url))
    assert not list(tmp_path.rglob("model.bin*"))
    assert store.missing(weights(), tmp_path)


def test_a_gated_model_wants_a_token_which_the_next_host_never_sees(hubs, tmp_path):
    hub, elsewhere = hubs(), hubs()
    hub.wants_token, hub.send_on = "hf_secret", elsewhere.url
    gated = weights(gated=True)
    with pytest.raises(FetchError, match=r"accept its licence at PAGE and set HF_TOKEN"):
        fetch(gated, tmp_path, Source(hub.url))
    assert hub.asked == []
    with pytest.raises(FetchError, match="401"):
        fetch(gated, tmp_path, Source(hub.url, "hf_wrong"))
    fetch(gated, tmp_path, Source(hub.url, "hf_secret"))
    assert {asked[1] for asked in elsewhere.asked} == {None}
    assert "hf_secret" not in repr(Source(hub.url, "hf_secret"))


def test_a_model_that_is_open_is_asked_for_without_the_token(hubs, tmp_path):
    hub = hubs()
    fetch(weights(), tmp_path, Source(hub.url, "hf_secret"))
    assert {asked[1] for asked in hub.asked} == {None}


@pytest.mark.parametrize("hub", ["hub.example", "http://a b", "http://[::1", "ftp:"])
def test_a_hub_that_is_no_address_is_said(tmp_path, hub):
    with pytest.raises(FetchError, match="cannot fetch"):
        fetch(weights(), tmp_path, Source(hub))


@pytest.mark.parametrize(
    "said", [b"SSH-2.0-nonsense\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b""]
)
def test_a_server_that_speaks_something_else_is_said(tmp_path, said):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer_once, args=(listening, said), daemon=True)
        thread.start()
        with pytest.raises(FetchError, match="cannot fetch"):
            fetch(weights(), tmp_path, Source(f"http://127.0.0.1:{listening.getsockname()[1]}"))
        thread.join(60)


def answer_once(listening, said):
    connection, _ = listening.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(said)


def test_what_cannot_be_is_said(hubs, tmp_path, monkeypatch):
    hub = hubs()
    hub.files.clear()
    with pytest.raises(FetchError, match="404"):
        fetch(weights(), tmp_path / "a", Source(hub.url))
    with pytest.raises(FetchError, match="cannot fetch"):
        fetch(weights(), tmp_path / "b", Source("http://127.0.0.1:9"))
    (tmp_path / "file").write_text("")
    with pytest.raises(FetchError, match="cannot write"):
        fetch(weights(), tmp_path / "file", Source(hub.url))
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    with pytest.raises(FetchError, match="MiB are free"):
        fetch(weights(), tmp_path / "c", Source(hub.url))


def test_one_fetch_at_a_time(hubs, tmp_path):
    hub, begun, go = hubs(), threading.Event(), threading.Event()

    def wait(count):
        begun.set()
        go.wait(10)

    thread = threading.Thread(target=fetch, args=(weights(), tmp_path, Source(hub.url), wait))
    thread.start()
    assert begun.wait(10)
    with pytest.raises(FetchError, match="another fetch"):
        fetch(weights(), tmp_path, Source(hub.url))
    go.set()
    thread.join(10)
    assert not store.missing(weights(), tmp_path)


def test_a_server_finds_what_was_fetched_or_says_which_command(hubs, tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "CATALOGUE", (weights(),))
    environ = {"MODELS_ROOT": str(tmp_path)}
    with pytest.raises(WeightsMissingError, match="run voxint models fetch --service whisper"):
        store.find("whisper", None, environ)
    folder = fetch(weights(), tmp_path, Source(hubs().url))
    assert store.find("whisper", None, environ) == (folder, "us/tiny@r1")
    (folder / "config.json").write_text("cut")
    with pytest.raises(WeightsMissingError, match=r"config\.json is not there"):
        store.find("whisper", None, environ)


def test_the_commands(hubs, tmp_path, monkeypatch, capsys):
    hub = hubs()
    both = (weights(), weights(service="pyannote", name="us/gated", gated=True))
    monkeypatch.setattr(command, "CATALOGUE", both)
    environ = {"MODELS_ROOT": str(tmp_path), "HF_ENDPOINT": hub.url + "/"}
    assert command.main(["fetch"], environ) == 1, "one of two could not be fetched"
    out, err = capsys.readouterr()
    assert out == f"whisper: {tmp_path}/us--tiny@r1\n"
    assert "us/tiny, 1.0 MB, licence MIT" in err
    assert "set HF_TOKEN" in err
    assert command.main(["list"], environ) == 0
    listed = capsys.readouterr().out
    assert "whisper   there" in listed
    assert "pyannote  not there" in listed
    assert "wants an account" in listed
    assert command.main(["fetch", "--service", "whisper"], environ) == 0
    with pytest.raises(SystemExit) as caught:
        command.main(["fetch", "--service", "other"], environ)
    assert caught.value.code == 2


def test_the_catalogue_is_fixed_by_revision_and_digest():
    assert [w.service for w in CATALOGUE] == ["whisper", "pyannote", "titanet"]
    for w in CATALOGUE:
        assert w.licence
        assert w.page.startswith("https://")
        assert w.address.format(hub="https://hub", name=w.name, revision=w.revision, path="x").startswith("https://")
        assert all(len(file.sha256) == 64 and file.size > 0 and not file.path.startswith("/") for file in w.files)
    assert 3.0e9 < catalogue.of("whisper").size < 3.2e9


def test_the_folder_is_named_or_the_images_volume_or_the_users(tmp_path, monkeypatch):
    assert store.root({"MODELS_ROOT": "/weights", "HOME": "/home/me"}) == Path("/weights")
    monkeypatch.setattr(store, "IN_IMAGES", tmp_path / "none")
    assert store.root({"HOME": "/home/me"}) == Path("/home/me/.local/share/voxint/models")
    assert store.root({"HOME": "/home/me", "XDG_DATA_HOME": "/data"}) == Path("/data/voxint/models")
    monkeypatch.setattr(store, "IN_IMAGES", tmp_path)
    assert store.root({"HOME": "/home/me"}) == tmp_path
