"""Each kind of service: looked at, stopped politely and hard, started, and what is said when it cannot be done.

Docker is a stand-in with real processes, systemd a script, vLLM, Ollama, llama-swap and llama.cpp are stand-ins
written from their documentation.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from docker_engine import PROJECT, SERVICE, FakeContainer, FakeEngine
from model_servers import Server

from voxint_broker.adapters import processes
from voxint_broker.adapters.child import MARK
from voxint_broker.adapters.making import adapter_of
from voxint_broker.adapters.protocol import Condition, ServiceError
from voxint_broker.config import check
from voxint_broker.drain import busy

READY = "http://127.0.0.1:1/"


def service_of(tmp_path, **fields):
    values = {
        "state_dir": str(tmp_path),
        "memory": {"kind": "none"},
        "service": [{"name": "lm", "ready_url": READY, **fields}],
    }
    return check(values, tmp_path).service[0]


def adapter(tmp_path, **fields):
    return adapter_of(service_of(tmp_path, **fields), "test")


def until(adapter, condition, seconds=60):
    limit = time.monotonic() + seconds
    while (look := adapter.look()).condition is not condition:
        assert time.monotonic() < limit, look
        adapter.wait(0.01)
    return look


# --- child processes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("remembered", [True, False])
def test_what_a_dead_leader_left_behind_is_found_and_stopped(tmp_path, remembered):
    config = {"kind": "child", "command": ["sh", "-c", "sleep 61 & sleep 62; true"]}
    first = adapter(tmp_path, **config)
    first.start()
    until(first, Condition.RUNNING)
    handle = first.handle()
    limit = time.monotonic() + 20
    while len(processes.in_group(handle["pid"])) < 3:
        assert time.monotonic() < limit
        time.sleep(0.01)
    os.kill(handle["pid"], signal.SIGKILL)
    first.wait(5)
    assert "its child processes are left" in first.look().detail
    second = adapter(tmp_path, **config)
    second.adopt(handle if remembered else {})
    assert second.look().condition is Condition.RUNNING
    second.stop(second.levels()[0])
    until(second, Condition.STOPPED)
    assert processes.in_group(handle["pid"]) == ()


def test_a_process_that_left_the_group_is_stopped_as_well(tmp_path):
    lm = adapter(tmp_path, kind="child", command=["sh", "-c", "setsid sleep 63 & sleep 64"])
    lm.start()
    mark = f"{MARK}=test/lm"
    (leader,) = lm.look().pids
    limit = time.monotonic() + 20
    while len(found := processes.marked(mark)) < 3 or set(found) <= set(processes.in_group(leader)):
        assert time.monotonic() < limit
        time.sleep(0.01)
    lm.stop(lm.levels()[0])
    until(lm, Condition.STOPPED)  # its group is gone
    swept = lm.sweep()
    assert (swept.condition, swept.leftover) == (Condition.RUNNING, True)
    lm.stop(lm.levels()[0])
    until(lm, Condition.STOPPED)
    assert lm.sweep().condition is Condition.STOPPED
    assert processes.marked(mark) == ()


def test_a_recycled_process_id_is_not_ours(tmp_path):
    other = subprocess.Popen(["sleep", "65"], start_new_session=True)
    try:
        lm = adapter(tmp_path, kind="child", command=["true"])
        lm.adopt({"pid": other.pid, "ticks": 1, "boot": processes.boot_id()})
        assert lm.look().condition is Condition.STOPPED
        lm.stop(lm.levels()[1])
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


# --- commands -------------------------------------------------------------------------------------------------


@pytest.fixture
def commands(tmp_path):
    flag = tmp_path / "runs"

    def argv(text):
        return [
            sys.executable,
            "-S",
            "-E",
            "-c",
            f"import os, sys, pathlib; flag = pathlib.Path({str(flag)!r}); {text}",
        ]

    return flag, {
        "kind": "command",
        "start": argv("flag.touch()"),
        "stop": argv("flag.unlink()"),
        "running": argv("sys.exit(0 if flag.exists() else 3)"),
    }


def test_commands_stop_and_start(tmp_path, commands):
    flag, config = commands
    lm = adapter(tmp_path, **config)
    assert lm.look().condition is Condition.STOPPED
    lm.start()
    assert flag.exists()
    assert lm.look().condition is Condition.RUNNING
    lm.stop(lm.levels()[0])
    assert lm.look().condition is Condition.STOPPED


def test_a_command_that_fails_is_told_with_its_words(tmp_path, commands):
    _, config = commands
    lm = adapter(tmp_path, **config)
    with pytest.raises(ServiceError, match=r"exit status 1: .*No such file or directory"):
        lm.stop(lm.levels()[0])
    config["start"] = ["/no/such/program"]
    with pytest.raises(ServiceError, match="cannot run /no/such/program: No such file"):
        adapter(tmp_path, **config).start()


def test_of_a_program_that_says_much_the_end_is_told(tmp_path, commands):
    _, config = commands
    talks = "import sys; print('first words'); [print('noise', n) for n in range(200)]; sys.exit('CUDA error: out of memory')"
    config["start"] = [sys.executable, "-c", talks]
    with pytest.raises(ServiceError) as failed:
        adapter(tmp_path, **config).start()
    told = str(failed.value)
    assert told.endswith("CUDA error: out of memory")
    assert "exit status 1: ... noise" in told or "exit status 1: ... 1" in told, told
    assert "first words" not in told
    assert len(told) < 500


@pytest.mark.parametrize(
    "running", [["/no/such/program"], [sys.executable, "-c", "raise SystemExit(9)"], ["sleep", "30"]]
)
def test_a_look_that_fails_is_unknown(tmp_path, commands, running):
    _, config = commands
    lm = adapter(tmp_path, **{**config, "running": running, "look_seconds": 0.3})
    begun = time.monotonic()
    look = lm.look()
    assert look.condition is Condition.UNKNOWN
    assert look.detail
    assert time.monotonic() - begun < 10


# --- systemd --------------------------------------------------------------------------------------------------

SYSTEMCTL = """
import json, pathlib, sys
state = pathlib.Path({state!r})
now = json.loads(state.read_text())
words = [word for word in sys.argv[1:] if not word.startswith("--")]
now["calls"].append(sys.argv[1:])
if words[0] == "show":
    for name in ("LoadState", "ActiveState", "SubState", "Result", "MainPID", "ControlGroup", "Job"):
        if name != "Job" or name in now:
            print(f"{{name}}={{now.get(name, '')}}")
elif words[0] == "stop" and not now.get("stuck"):
    now |= {{"ActiveState": "inactive", "ControlGroup": ""}}
elif words[0] == "kill":
    now |= {{"ActiveState": "failed", "Result": "signal", "ControlGroup": ""}}
elif words[0] == "start":
    if now.get("refuse"):
        print(now["refuse"], file=sys.stderr)
        sys.exit(1)
    now |= {{"ActiveState": "active", "SubState": "running", "ControlGroup": "/system.slice/llm.service"}}
state.write_text(json.dumps(now))
"""


@pytest.fixture
def unit(tmp_path):
    state = tmp_path / "unit.json"
    program = tmp_path / "systemctl.py"
    program.write_text(SYSTEMCTL.format(state=str(state)))

    def write(**fields):
        base = {"calls": [], "LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead", "MainPID": "0"}
        state.write_text(json.dumps({**base, **fields}))

    write()
    config = {
        "kind": "systemd",
        "unit": "llm.service",
        "systemctl": [sys.executable, "-S", "-E", str(program)],
    }
    return config, write, lambda: json.loads(state.read_text())


def test_a_unit_is_stopped_started_and_killed(tmp_path, unit):
    config, write, read = unit
    lm = adapter(tmp_path, **config)
    assert lm.look().condition is Condition.STOPPED
    lm.start()
    assert lm.look().condition is Condition.RUNNING
    lm.stop(lm.levels()[0])
    assert lm.look().condition is Condition.STOPPED
    told = [call for call in read()["calls"] if {"start", "stop"} & set(call)]
    write(ActiveState="active", stuck=True)
    lm.stop(lm.levels()[0])
    assert lm.look().condition is Condition.RUNNING
    lm.stop(lm.levels()[1])
    assert lm.look().condition is Condition.STOPPED
    assert lm.last_words() == "systemd says: signal"
    told += [call for call in read()["calls"] if {"start", "stop"} & set(call)]
    assert [("--no-block" in call) for call in told] == [True] * 3


@pytest.mark.parametrize("tree", [".", "unified", "systemd"], ids=["version 2", "hybrid", "version 1"])
def test_a_unit_is_not_gone_while_its_group_has_processes(tmp_path, unit, tree):
    config, write, _ = unit
    from voxint_broker.adapters.systemd import Systemd

    group = tmp_path / "cgroup" / tree / "system.slice" / "llm.service" / "inner"
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text("77\n")
    lm = Systemd(service_of(tmp_path, **config), tmp_path / "cgroup")
    write(ActiveState="active", ControlGroup="/system.slice/llm.service")
    assert lm.look().pids == (77,)
    write(ActiveState="inactive")
    look = lm.look()
    assert (look.condition, look.pids) == (Condition.RUNNING, (77,))
    (group / "cgroup.procs").write_text("")
    assert lm.look().condition is Condition.STOPPED


@pytest.mark.parametrize("state", ["activating", "deactivating", "reloading", "active"])
def test_a_unit_on_its_way_is_not_gone(tmp_path, unit, state):
    config, write, _ = unit
    write(ActiveState=state, SubState="auto-restart")
    assert adapter(tmp_path, **config).look().condition is Condition.RUNNING


@pytest.mark.parametrize("state", ["inactive", "failed"])
def test_a_unit_whose_start_waits_for_others_is_not_gone(tmp_path, unit, state):
    config, write, _ = unit
    lm = adapter(tmp_path, **config)
    write(ActiveState=state, Job="4711")
    look = lm.look()
    assert look.condition is Condition.RUNNING
    assert "job" in look.detail
    write(ActiveState=state)
    assert lm.look().condition is Condition.STOPPED


def test_a_unit_that_is_not_there_or_not_ours_is_told(tmp_path, unit):
    config, write, _ = unit
    write(LoadState="not-found")
    look = adapter(tmp_path, **config).look()
    assert look.condition is Condition.UNKNOWN
    assert "there is no unit llm.service" in look.detail
    write(refuse="Access denied")
    with pytest.raises(ServiceError, match="Access denied"):
        adapter(tmp_path, **config).start()
    config["systemctl"] = ["/no/systemctl"]
    assert adapter(tmp_path, **config).look().condition is Condition.UNKNOWN


# --- docker ---------------------------------------------------------------------------------------------------

SLEEPER = [sys.executable, "-S", "-E", "-c", "import time; time.sleep(60)"]
STUBBORN = [
    sys.executable, "-S", "-E", "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(60)",
]  # fmt: skip


@pytest.fixture
def engine(tmp_path):
    made = FakeEngine(tmp_path / "docker.sock")
    made.serve()
    yield made
    made.close()


def container(tmp_path, name="llm", argv=None, project="stack", **fields):
    labels = {PROJECT: project, SERVICE: "llm"}
    return FakeContainer(name, labels, argv or SLEEPER, str(tmp_path / f"{name}.log"), id=name, **fields)


def test_a_container_is_stopped_and_started(tmp_path, engine):
    box = engine.add(container(tmp_path))
    lm = adapter(tmp_path, kind="docker", container="llm", socket=engine.path)
    assert lm.look().condition is Condition.STOPPED
    lm.start()
    until(lm, Condition.RUNNING)
    lm.start()  # again is no error
    lm.stop(lm.levels()[0])
    until(lm, Condition.STOPPED)
    assert box.stops == 1
    assert "exit status" in lm.last_words()


def test_a_container_that_ignores_the_stop_is_killed(tmp_path, engine):
    box = engine.add(container(tmp_path, argv=STUBBORN, stop_timeout=20))
    lm = adapter(tmp_path, kind="docker", container="llm", socket=engine.path, stop_seconds=0.2)
    lm.start()
    limit = time.monotonic() + 10
    while "on" not in (tmp_path / "llm.log").read_text():
        assert time.monotonic() < limit
        time.sleep(0.02)
    lm.stop(lm.levels()[0])
    time.sleep(0.3)
    assert lm.look().condition is Condition.RUNNING
    lm.stop(lm.levels()[1])
    until(lm, Condition.STOPPED)
    assert box.process.poll() is not None


def test_a_compose_service_is_all_its_containers_and_no_others(tmp_path, engine):
    ours = [engine.add(container(tmp_path, name)) for name in ("stack-llm-1", "stack-llm-2")]
    other = engine.add(container(tmp_path, "other-llm-1", project="other"))
    other.start()
    lm = adapter(tmp_path, kind="compose", project="stack", service="llm", socket=engine.path)
    assert lm.look().condition is Condition.STOPPED
    ours[1].start()
    look = lm.look()
    assert look.condition is Condition.RUNNING
    assert "stack-llm-2" in look.detail
    lm.start()
    assert [box.status() for box in ours] == ["running", "running"]
    lm.stop(lm.levels()[0])
    until(lm, Condition.STOPPED)
    assert other.status() == "running"


def test_a_one_off_run_of_a_compose_service_is_stopped_and_never_started(tmp_path, engine):
    box = engine.add(container(tmp_path, "stack-llm-1"))
    run = container(tmp_path, "stack-llm-run-1")
    run.labels["com.docker.compose.oneoff"] = "True"
    engine.add(run)
    lm = adapter(tmp_path, kind="compose", project="stack", service="llm", socket=engine.path)
    run.start()
    assert "stack-llm-run-1" in lm.look().detail  # it may hold the GPU's memory
    lm.stop(lm.levels()[0])
    until(lm, Condition.STOPPED)
    lm.start()
    assert (box.status(), run.status(), run.starts) == ("running", "exited", 1)
    engine.remove(box)
    with pytest.raises(ServiceError, match="create it first"):
        lm.start()


def test_a_container_without_a_name_is_called_by_its_id(tmp_path, engine, monkeypatch):
    box = engine.add(container(tmp_path, "0123456789abcdef", forced="removing"))
    monkeypatch.setattr(engine, "names", False)
    look = adapter(tmp_path, kind="compose", project="stack", service="llm", socket=engine.path).look()
    assert (look.condition, look.detail) == (Condition.RUNNING, f"{box.id[:12]} is removing")


@pytest.mark.parametrize("state", ["restarting", "paused", "removing"])
def test_a_container_between_states_is_not_gone(tmp_path, engine, state):
    engine.add(container(tmp_path, forced=state))
    assert adapter(tmp_path, kind="docker", container="llm", socket=engine.path).look().condition is Condition.RUNNING


def test_no_container_does_not_run_and_cannot_be_started(tmp_path, engine):
    lm = adapter(tmp_path, kind="docker", container="llm", socket=engine.path)
    assert lm.look().condition is Condition.STOPPED
    with pytest.raises(ServiceError, match="No such container"):
        lm.start()
    many = adapter(tmp_path, kind="compose", project="stack", service="llm", socket=engine.path)
    with pytest.raises(ServiceError, match="create it first"):
        many.start()


def test_an_engine_that_does_not_answer_is_unknown(tmp_path, engine):
    engine.add(container(tmp_path))
    lm = adapter(tmp_path, kind="docker", container="llm", socket=engine.path)
    engine.answer = (500, b'{"message": "sick"}')
    assert lm.look().condition is Condition.UNKNOWN
    engine.answer = (200, b"[]")
    assert lm.look().condition is Condition.UNKNOWN
    gone = adapter(tmp_path, kind="docker", container="llm", socket=str(tmp_path / "none.sock"))
    look = gone.look()
    assert look.condition is Condition.UNKNOWN
    assert "cannot ask the Docker engine" in look.detail


# --- servers that sleep ---------------------------------------------------------------------------------------


@pytest.fixture
def server():
    made = Server()
    yield made
    made.close()


KINDS = [
    ("vllm", "as_vllm", []),
    ("ollama", "as_ollama", ["a"]),
    ("llama-swap", "as_llama_swap", []),
    ("llama.cpp", "as_llama_cpp", ["a"]),
]


@pytest.mark.parametrize(("kind", "shape", "models"), KINDS)
def test_a_server_sleeps_and_wakes(tmp_path, server, kind, shape, models):
    getattr(server, shape)()
    lm = adapter(tmp_path, kind="http", server=kind, url=server.url, models=models)
    assert lm.look().condition is Condition.RUNNING
    lm.stop(lm.levels()[0])
    assert lm.look().condition is Condition.ASLEEP
    if kind != "vllm":
        assert server.loaded == {}
    lm.start()
    assert lm.look().condition is (Condition.ASLEEP if kind == "llama-swap" else Condition.RUNNING)


@pytest.mark.parametrize(("kind", "shape", "models"), KINDS)
@pytest.mark.parametrize("answer", [(500, "sick"), (200, "<html>"), (200, {}), (200, []), (404, {})])
def test_a_server_that_answers_something_else_is_unknown(tmp_path, server, kind, shape, models, answer):
    getattr(server, shape)()
    server.routes = {route: lambda _: answer for route in server.routes}
    lm = adapter(tmp_path, kind="http", server=kind, url=server.url, models=models)
    assert lm.look().condition is Condition.UNKNOWN


def test_vllm_forgets_its_weights_at_level_2_and_is_given_them_again(tmp_path, server):
    server.as_vllm()
    lm = adapter(tmp_path, kind="http", server="vllm", url=server.url, level=2)
    lm.stop(lm.levels()[0])
    server.calls.clear()
    lm.start()
    assert server.calls == [
        ("POST", "/wake_up?tags=weights", None),
        ("POST", "/collective_rpc", {"method": "reload_weights"}),
        ("POST", "/wake_up?tags=kv_cache", None),
    ]
    assert lm.look().condition is Condition.RUNNING


def test_ollama_unloads_when_its_last_request_is_done(tmp_path, server):
    server.as_ollama()
    server.at_work = {"b"}
    lm = adapter(tmp_path, kind="http", server="ollama", url=server.url)
    lm.stop(lm.levels()[0])
    look = lm.look()
    assert (look.condition, look.detail) == (Condition.RUNNING, "in its memory: b")
    server.done("b")
    assert lm.look().condition is Condition.ASLEEP


def test_llama_swap_is_told_to_unload_also_what_it_only_begins_to_load(tmp_path, server):
    server.as_llama_swap()
    server.loaded = {"a": "starting"}  # its list does not show it
    lm = adapter(tmp_path, kind="http", server="llama-swap", url=server.url)
    assert lm.look().condition is Condition.ASLEEP
    assert lm.sweep().condition is Condition.ASLEEP
    assert server.loaded == {}


@pytest.mark.parametrize("state", ["loading", "loaded", "sleeping"])
def test_llama_cpp_is_on_the_gpu_until_its_model_is_unloaded(tmp_path, server, state):
    server.as_llama_cpp()
    server.loaded = {"a": state}
    lm = adapter(tmp_path, kind="http", server="llama.cpp", url=server.url)
    assert lm.look().condition is Condition.RUNNING
    lm.stop(lm.levels()[0])
    assert lm.look().condition is Condition.ASLEEP


def test_a_server_whose_owner_says_that_it_is_gone_is_gone(tmp_path, server, commands):
    server.as_vllm()
    flag, config = commands
    lm = adapter(tmp_path, kind="http", server="vllm", url=server.url, owner=config)
    assert lm.look().condition is Condition.STOPPED
    lm.start()
    assert flag.exists()
    assert lm.look().condition is Condition.RUNNING
    assert [level.name for level in lm.levels()] == ["sleep", "stop"]


# --- work in flight -------------------------------------------------------------------------------------------


def drain(tmp_path, **fields):
    return service_of(tmp_path, kind="child", command=["true"], drain=fields).drain


def test_llama_cpp_says_which_slots_are_at_work(tmp_path, server):
    slots = [{"id": 0, "is_processing": False}, {"id": 1, "is_processing": True}]
    server.routes = {("GET", "/slots"): lambda _: (200, slots)}
    config = drain(tmp_path, kind="llama.cpp", url=server.url)
    assert busy(config) == (True, "1 of 2 slots at work")
    slots[1]["is_processing"] = False
    assert busy(config)[0] is False
    server.routes = {("GET", "/slots"): lambda _: (501, {"error": "This server does not support slots endpoint."})}
    assert busy(config)[0] is None


def test_vllm_counts_its_requests(tmp_path, server):
    count = [0]
    text = (
        "# TYPE vllm:num_requests_running gauge\n"
        'vllm:num_requests_running{{engine="0",model_name="m"}} {}.0\n'
        'vllm:num_requests_waiting{{engine="0",model_name="m"}} 1.0\n'
    )
    server.routes = {("GET", "/metrics"): lambda _: (200, text.format(count[0]))}
    config = drain(tmp_path, kind="vllm", url=server.url)
    assert busy(config) == (True, "1 requests at work")
    server.routes = {("GET", "/metrics"): lambda _: (200, text.format(0).replace(" 1.0", " 0.0"))}
    assert busy(config)[0] is False
    server.routes = {("GET", "/metrics"): lambda _: (200, "nothing")}
    assert busy(config)[0] is None


@pytest.mark.parametrize(("status", "expected"), [(0, False), (1, True), (7, None)])
def test_a_command_says_whether_there_is_work(tmp_path, status, expected):
    argv = [sys.executable, "-S", "-E", "-c", f"raise SystemExit({status})"]
    assert busy(drain(tmp_path, kind="command", command=argv, answer_seconds=20))[0] is expected
