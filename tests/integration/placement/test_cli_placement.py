"""`voxint placement` on a real database and real sockets: the table, the log, the probe, and their exit statuses."""

from __future__ import annotations

import io
import json
import random
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from kokoro_log import FIGURES, processes, with_docker_times
from sqlalchemy import text
from stored_phase import add_recordings, store_phase
from voxint_command import command_in

from voxint.services.placement.judge import Evidence, Expectation, Judgement, Verdict
from voxint.services.placement.probe import TEXT
from voxint.services.placement.store import PlacementStore
from voxint.services.placement.warm_up import tone

URLS = {f"GPU_LEASE_{name}_URL": f"http://127.0.0.1:9/gpu/{name.lower()}" for name in ("ACQUIRE", "RELEASE", "STATUS")}
CLOSED = "http://127.0.0.1:9"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer(200, json.dumps(self.server.health).encode(), "application/json")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, body))
        self.server.when_asked()
        time.sleep(self.server.seconds)
        self.answer(*self.server.reply)

    def answer(self, status, body, kind):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


SPOKEN = (200, tone(0.1), "audio/wav")


@contextmanager
def service(device=None, *, seconds=0.0, reply=SPOKEN):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.health = {"status": "ok", "model": "m"} | ({"device": device} if device else {})
    server.asked, server.seconds, server.reply, server.when_asked = [], seconds, reply, lambda: None
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def voxint(monkeypatch, tmp_path, database_url, redis_url, capsys):
    """Runs a command in this process with more settings; gives (exit status, stdout, stderr)."""
    for name, value in {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "MEDIA_ROOT": str(tmp_path / "media"),
        "SERVICE_CONTROL": "process",
        "SERVICE_STATE_DIR": str(tmp_path / "run"),
        "COMPUTE_TIER": "gpu",
        "HOME": str(tmp_path),
        **{f"{name}_URL": CLOSED for name in ("WHISPER", "PYANNOTE", "TITANET", "SPEACHES")},
    }.items():
        monkeypatch.setenv(name, value)

    command = command_in(capsys)

    def run(*arguments, **settings):
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        return command(*arguments)

    return run


def cells(out):
    head, *rows = [line.split("  ") for line in out.splitlines()]
    return [[cell.strip() for cell in row if cell.strip()] for row in (head, *rows)]


# --- the table --------------------------------------------------------------------------------------------------------


def test_the_table_names_the_wrong_one_and_exits_1(voxint):
    with service("cuda:0") as good, service("cpu") as bad:
        status, out, err = voxint("placement", WHISPER_URL=good.url, PYANNOTE_URL=bad.url)
    assert status == 1
    assert cells(out) == [
        ["service", "expected", "verdict", "device", "why"],
        ["whisper", "cuda", "ok", "cuda", "its health answer says cuda:0"],
        ["pyannote", "cuda", "wrong", "cpu", "its health answer says cpu"],
        ["titanet", "cuda", "unknown", "-", "it does not run, and was never seen"],
    ]
    assert "docs/explanation/placement.md" in err


def test_all_well_exits_0_and_so_does_what_cannot_be_told(voxint):
    with service("cuda:0") as good, service() as silent:
        status, out, _ = voxint("placement", WHISPER_URL=good.url, PYANNOTE_URL=silent.url)
    assert status == 0
    assert ["pyannote", "cuda", "unknown", "-", "it reports no device, and nothing else tells"] in cells(out)


def test_what_does_not_run_is_shown_as_it_was_last_seen(voxint, engine):
    expected = Expectation()
    PlacementStore(engine).record(
        Judgement("pyannote", Verdict.WRONG, expected, Evidence.DEVICE, "its health answer says cpu")
    )
    status, out, _ = voxint("placement")
    assert status == 1
    (row,) = [row for row in cells(out) if row[0] == "pyannote"]
    assert "its health answer says cpu (seen " in row[-1]
    assert "it does not run now" in row[-1]


def test_as_json(voxint):
    with service("cpu") as bad:
        status, out, _ = voxint("placement", "--json", WHISPER_URL=bad.url)
    assert status == 1
    document = json.loads(out)
    assert (document["tier"], document["action"]) == ("gpu", "warn")
    assert document["services"][0] == {
        "service": "whisper",
        "expected": "cuda",
        "verdict": "wrong",
        "device": "cpu",
        "evidence": "device",
        "why": "its health answer says cpu",
        "seen_at": None,
        "restarts": 0,
    }


@pytest.mark.parametrize("tier", ["cpu", "metal", "simulated"])
def test_a_tier_without_a_gpu_expects_nothing_and_says_so(voxint, tier):
    with service("cpu") as on_cpu:
        status, out, err = voxint("placement", COMPUTE_TIER=tier, WHISPER_URL=on_cpu.url)
    assert status == 0
    assert on_cpu.asked == []
    assert {row[2] for row in cells(out)[1:]} == {"not expected"}
    assert f"COMPUTE_TIER={tier}: no service is expected on a GPU" in err


def test_an_answer_that_is_not_ours_is_no_markup_and_no_command_for_the_terminal(voxint):
    with service("cuda\x1b[2J[red]") as odd:
        status, out, _ = voxint("placement", WHISPER_URL=odd.url)
    assert status == 0
    assert "\x1b" not in out
    assert "[red]" in out


# --- the log ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def log_file(tmp_path):
    made = sorted(processes(random.Random(7)), key=lambda process: process.lines[0][0])
    path = tmp_path / "speaches.log"
    path.write_text("".join(line for process in made for line in with_docker_times(process.lines)))
    return path


def test_the_log_gives_the_table_of_regimes(voxint, log_file):
    status, out, err = voxint("placement", "log", "speaches", log_file)
    assert status == 0
    rows = [row for row in cells(out)[1:] if row[1] != "-"]
    assert [(row[1], row[2]) for row in rows] == [(regime, f"{rate:,} c/s") for _, regime, rate in FIGURES]
    assert [row[0] for row in rows[1:]] == [start for start, _, _ in FIGURES[1:]]
    assert rows[0][0].startswith("before 2026-08-26")
    assert "20 starts timed: 11 GPU, 9 CPU." in err
    assert "15 starts had no read of 1,000 or more characters" in err


def test_the_log_from_standard_input(voxint, log_file, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(log_file.read_text()))
    status, out, _ = voxint("placement", "log", "speaches", "-", "--json")
    assert status == 0
    starts = json.loads(out)["starts"]
    assert [start["regime"] for start in starts].count("gpu") == 11


def test_the_log_that_process_control_keeps(voxint, log_file, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "speaches.log").write_text(log_file.read_text())
    status, out, _ = voxint("placement", "log", "speaches", GPU_PHASE_SERVICES="speaches")
    assert status == 0
    assert len(cells(out)) == 1 + 35


def test_no_log_is_an_error_that_says_what_to_do(voxint):
    status, out, err = voxint("placement", "log", "whisper")
    assert (status, out) == (1, "")
    assert "cannot read the log of whisper" in err
    assert "docker logs -t CONTAINER 2>&1 | voxint placement log whisper -" in err
    status, _, err = voxint("placement", "log", "whisper", SERVICE_CONTROL="none")
    assert status == 1
    assert "SERVICE_CONTROL=none" in err
    assert voxint("placement", "log", "whisper", "/nowhere/at.all")[0] == 1
    assert voxint("placement", "log", "nobody")[0] == 2
    assert voxint("placement", "log", "whisper", "-", "--cpu-below", "500", "--gpu-from", "400")[0] == 2


def test_a_log_that_tells_nothing_exits_0(voxint, tmp_path):
    (tmp_path / "x.log").write_text("INFO:     Started server process [1]\nhello\n")
    status, out, err = voxint("placement", "log", "speaches", tmp_path / "x.log")
    assert status == 0
    assert cells(out)[1][:2] == ["unknown", "-"]
    assert "No start could be timed." in err


# --- the probe --------------------------------------------------------------------------------------------------------

SPEACHES = {"GPU_PHASE_SERVICES": "speaches"}


def probed(voxint, url, *more, **settings):
    return voxint("placement", "probe", "speaches", "--json", *more, **SPEACHES, SPEACHES_URL=url, **settings)


def test_the_probe_warms_up_and_times_the_second_request(voxint):
    with service(seconds=0.2) as server:
        status, out, _ = probed(voxint, server.url)
    assert status == 0
    found = json.loads(out)
    assert [path for path, _ in server.asked] == ["/v1/audio/speech"] * 2
    request = json.loads(server.asked[1][1])
    assert request == {
        "model": "speaches-ai/Kokoro-82M-v1.0-ONNX",
        "voice": "bf_emma",
        "input": TEXT,
        "response_format": "wav",
    }
    assert found["seconds"] >= 0.2
    assert found["rate"] == pytest.approx(len(TEXT) / found["seconds"], rel=0.02)
    assert (found["verdict"], found["kept_as_baseline"], found["baseline"]) == ("unknown", False, None)


def test_the_text_is_prose_of_about_500_characters():
    assert 450 <= len(TEXT) <= 560
    assert max(len(word) for word in TEXT.split()) <= 12
    assert len(set(TEXT.split())) > 60


def test_a_kept_speed_is_what_later_probes_are_compared_with(voxint, engine):
    store = PlacementStore(engine)
    with service() as server:
        kept = json.loads(probed(voxint, server.url, "--keep-baseline")[1])
        assert kept["kept_as_baseline"]
        assert store.gpu_rate("speaches") == pytest.approx(kept["rate"], rel=0.01)
        # Speeds that no machine is near, however busy it is: a text in a minute, and a million characters a second.
        store.keep_baseline("speaches", len(TEXT) / 60, "characters")
        fast = json.loads(probed(voxint, server.url)[1])
        store.keep_baseline("speaches", 1e9, "characters")
        slow = json.loads(probed(voxint, server.url)[1])
    assert (fast["verdict"], slow["verdict"]) == ("ok", "slow")
    assert (slow["baseline"], slow["kept_as_baseline"]) == (1e9, False)


def test_the_first_speed_is_kept_by_itself_where_the_device_is_known(voxint):
    with service("cuda:0") as server:
        assert json.loads(probed(voxint, server.url)[1])["kept_as_baseline"]
    with service("cpu") as server:
        status, _, err = probed(voxint, server.url, "--keep-baseline")
    assert status == 1
    assert "not kept: speaches runs on cpu, expected cuda" in err


def test_for_people(voxint):
    with service() as server:
        status, out, err = voxint("placement", "probe", "speaches", **SPEACHES, SPEACHES_URL=server.url)
    assert status == 0
    assert out.startswith(f"speaches: {len(TEXT)} characters in ")
    assert out.rstrip().endswith(": unknown")
    assert "--keep-baseline" in err
    assert "0.5 to 1 s was a GPU and about 6 s a CPU" in err


SHARING = {"GPU_PHASE_ENABLED": "true", **URLS}


@pytest.mark.parametrize("phase", ["llm", "acquiring", "starting_services", "draining", "releasing", "error"])
def test_outside_audio_it_refuses_and_asks_nothing(voxint, engine, phase):
    store_phase(engine, phase)
    with service() as server:
        status, out, err = probed(voxint, server.url, **SHARING)
    assert (status, out, server.asked) == (1, "", [])
    assert f"phase {phase}" in err
    assert "audio phase only" in err


def test_without_a_row_it_refuses_too(voxint):
    with service() as server:
        status, _, err = probed(voxint, server.url, **SHARING)
    assert (status, server.asked) == (1, [])
    assert "phase none" in err


def test_in_audio_with_nothing_to_do_it_is_made(voxint, engine):
    store_phase(engine, "audio")
    with service() as server:
        status, _, _ = probed(voxint, server.url, **SHARING)
    assert status == 0
    assert len(server.asked) == 2


def begin_work(engine):
    add_recordings(engine)
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE work_item SET state = 'running', claim_token = 'x', heartbeat_at = voxint_now()")
        )


@pytest.mark.parametrize("state", ["queued", "running"])
def test_while_the_lane_is_busy_it_refuses(voxint, engine, state):
    store_phase(engine, "audio")
    if state == "running":
        begin_work(engine)
    else:
        add_recordings(engine)
    with service() as server:
        status, _, err = probed(voxint, server.url, **SHARING)
    assert (status, server.asked) == (1, [])
    assert ("at work" if state == "running" else "about to begin") in err


def test_work_that_begins_meanwhile_makes_the_time_tell_nothing(voxint, engine):
    PlacementStore(engine).keep_baseline("speaches", 1e9, "characters")
    store_phase(engine, "audio")
    with service() as server:
        server.when_asked = lambda: begin_work(engine) if len(server.asked) == 2 else None
        status, out, _ = probed(voxint, server.url, "--keep-baseline", **SHARING)
    found = json.loads(out)
    assert (status, found["verdict"], found["kept_as_baseline"]) == (0, "unknown", False)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ((500, b'{"detail": "out of memory"}', "application/json"), "speaches answered 500: out of memory"),
        ((200, b"hello", "audio/wav"), "no WAV file"),
    ],
)
def test_a_request_that_fails_is_an_error(voxint, reply, words):
    with service(reply=reply) as server:
        status, out, err = probed(voxint, server.url)
    assert (status, out) == (1, "")
    assert words in err


def test_a_service_that_is_stopped_is_an_error(voxint):
    status, _, err = probed(voxint, CLOSED)
    assert status == 1
    assert "could not probe speaches" in err


def test_a_service_that_listens_is_given_speech(voxint):
    reply = (200, json.dumps({"text": "a", "segments": []}).encode(), "application/json")
    with service("cuda:0", reply=reply) as server:
        status, out, _ = voxint("placement", "probe", "whisper", "--json", WHISPER_URL=server.url)
    assert status == 0
    found = json.loads(out)
    assert found["unit"] == "seconds of sound"
    assert 10 < found["amount"] < 120
    assert [path for path, _ in server.asked] == ["/v1/audio/transcriptions"] * 2
    assert b"RIFF" in server.asked[1][1]


def test_the_table_of_images(voxint):
    status, out, _ = voxint("placement", "images", "--json")
    assert status == 0
    (speaches,) = [row for row in json.loads(out) if row["service"] == "speaches"]
    assert (speaches["choice"], speaches["seed"], speaches["checked_on"]) == ("set-order", 0, "2026-09-25")
    assert "speaches" in voxint("placement", "images")[1]
