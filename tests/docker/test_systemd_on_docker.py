"""The broker's systemd adapter on a real systemd, with the shipped unit and polkit rule, in a container that is a small host.

Twice: with control groups of version 2 alone, as today's hosts have them, and with systemd's hybrid layout of older ones.
"""

from __future__ import annotations

import io
import json
import tarfile
import time

import pytest
from real_engine import ROOT, build_stubs

pytestmark = pytest.mark.timeout(600)
EXAMPLES = ROOT / "examples" / "broker"
LAYOUTS = {
    "version 2": "umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup",
    "hybrid": "mount -o remount,rw /sys/fs/cgroup",
}
BOOT = "{layout}; exec /lib/systemd/systemd"
UNIT = """[Service]
Environment=PYTHONPATH=/app/src CARD_LOCK=/card/card.lock CARD_LEDGER=/card/card.ledger STUB_CONTROL=/card/stub.json
ExecStart=/opt/venv/bin/python3 -m voxint_models.stub language_model --host 127.0.0.1 --port 8081
TimeoutStopSec=600
"""
LEAVES_A_CHILD = """[Service]
KillMode=process
ExecStart=
ExecStart=/bin/sh -c 'setsid sleep 1000 & exec /opt/venv/bin/python3 -m voxint_models.stub language_model --port 8081'
"""
CONFIG = """
listen = ["127.0.0.1:9100"]
state_dir = "/var/lib/voxint-broker"
[memory]
kind = "lock"
path = "/card/card.lock"
[[service]]
name = "llm"
kind = "systemd"
unit = "llama-server.service"
stop_seconds = 4
kill_seconds = 10
[service.ready]
url = "http://127.0.0.1:8081/healthz"
"""
ASK = """
import json, sys, urllib.request, urllib.error
call, body = sys.argv[1], sys.argv[2].encode() or None
try:
    request = urllib.request.Request("http://127.0.0.1:9100/gpu/" + call, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=15) as answer:
        print(json.dumps([answer.status, json.load(answer)]))
except urllib.error.HTTPError as error:
    print(json.dumps([error.code, json.load(error)]))
except OSError as error:
    print(json.dumps([0, str(error)]))
"""


class Host:
    """A container that boots systemd."""

    def __init__(self, engine, layout):
        self.engine = engine
        self.client = engine.client()
        options = ("seccomp=unconfined", "apparmor=unconfined")
        self.container = self.client.containers.create(
            "voxint-test-systemd:1",
            ["sh", "-c", BOOT.format(layout=LAYOUTS[layout])],
            cap_add=["SYS_ADMIN"],
            cgroupns="private",
            security_opt=list(options),
            tmpfs={"/run": "exec", "/run/lock": "", "/tmp": "exec,mode=1777"},
        )
        self.put("/etc/systemd/system", "voxint-broker.service", (EXAMPLES / "voxint-broker.service").read_text())
        self.put("/etc/polkit-1/rules.d", "50-voxint-broker.rules", (EXAMPLES / "50-voxint-broker.rules").read_text())
        self.put("/etc/systemd/system", "llama-server.service", UNIT)
        self.put("/etc/systemd/system/voxint-broker.service.d", "card.conf", "[Service]\nReadWritePaths=/card\n")
        self.put("/etc/voxint-broker", "broker.toml", CONFIG)
        self.container.start()

    def put(self, folder, name, text):
        data, packed = text.encode(), io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
        self.container.put_archive(folder, packed.getvalue())

    def run(self, *argv):
        code, output = self.container.exec_run(list(argv))
        return code, output.decode(errors="replace").strip()

    def told(self):
        journal = self.run("journalctl", "--no-pager", "-n", "40", "-o", "cat")[1]
        return f"{self.run('systemctl', '--no-pager', 'status', 'llama-server', 'voxint-broker')[1]}\n{journal}"

    def wait(self, what, seconds, words):
        until = time.monotonic() + seconds
        while not (value := what()):
            assert time.monotonic() < until, f"not within {seconds} s: {words}\n{self.told()}"
            time.sleep(0.2)
        return value

    def state(self, unit="llama-server.service"):
        return self.run("systemctl", "show", "--value", "--property=ActiveState", unit)[1]

    def ask(self, call, **body):
        text = json.dumps(body) if body else ""
        return json.loads(self.run("python3", "-c", ASK, call, text)[1])

    def behave(self, **switches):
        self.run("sh", "-c", f"echo '{json.dumps(switches)}' > /card/stub.json")

    def acquire(self, seconds=60):
        def granted():
            code, answer = self.ask("acquire", holder="voxint", ttl_seconds=600, lease_id=None)
            assert code in {200, 202}, (code, answer)
            return answer if code == 200 else None

        return self.wait(granted, seconds, "the lease")["lease_id"]

    def release(self, lease_id, seconds=60):
        self.wait(lambda: self.ask("release", lease_id=lease_id)[0] in {200, 404}, seconds, "released")


@pytest.fixture(scope="module")
def image(engine):
    build_stubs(engine, engine.base, ["systemd"])


@pytest.fixture(scope="module", params=LAYOUTS)
def host(request, engine, image):
    made = Host(engine, request.param)
    try:
        made.wait(lambda: made.run("systemctl", "is-system-running")[1] in {"running", "degraded"}, 60, "systemd is up")
        made.run("sh", "-c", "touch /card/card.lock /card/card.ledger; chmod 0777 /card; chmod 0666 /card/*")
        assert made.run("systemctl", "start", "llama-server", "voxint-broker")[0] == 0, made.told()
        made.wait(lambda: made.ask("status")[0] == 200, 60, "the broker answers")
        yield made
    finally:
        made.container.remove(force=True)
        made.client.close()


@pytest.fixture(autouse=True)
def as_usual(host):
    yield
    host.behave()
    host.run("rm", "-f", "/etc/systemd/system/llama-server.service.d/child.conf")
    host.run("systemctl", "daemon-reload")


def test_the_unit_is_stopped_for_the_lease_and_started_for_the_release(host):
    assert host.run("systemctl", "show", "--value", "--property=User", "voxint-broker")[1] == "voxint-broker"
    host.wait(lambda: host.state() == "active", 30, "the language model runs")
    lease = host.acquire()
    assert host.state() in {"inactive", "failed"}
    host.release(lease)
    assert host.state() == "active"
    assert host.ask("status")[1]["state"] == "free"


def test_the_rule_lets_the_brokers_user_touch_that_unit_and_no_other(host):
    code, said = host.run("runuser", "-u", "voxint-broker", "--", "systemctl", "stop", "dbus.service")
    assert code != 0
    assert "authentication" in said.lower() or "access denied" in said.lower(), said
    code, said = host.run("runuser", "-u", "nobody", "--", "systemctl", "stop", "llama-server.service")
    assert code != 0
    assert host.state() == "active"


def test_a_unit_that_ignores_the_stop_is_killed(host):
    host.behave(ignore_term=True)
    lease = host.acquire()
    assert host.state() in {"inactive", "failed"}
    assert host.run("pgrep", "-f", "voxint_models.stub")[0] == 1
    host.behave()
    host.release(lease)
    assert host.state() == "active"


def test_a_process_that_the_unit_leaves_behind_counts_as_running(host):
    """KillMode=process: the unit is inactive, and one of its processes may hold the GPU all the same."""
    host.put("/etc/systemd/system/llama-server.service.d", "child.conf", LEAVES_A_CHILD)
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "restart", "llama-server")
    child = host.wait(lambda: host.run("pgrep", "-x", "sleep")[1], 30, "the child runs")
    host.wait(lambda: host.ask("status")[0] == 200, 30, "the broker answers")
    lease = host.acquire()
    assert host.run("pgrep", "-x", "sleep")[0] == 1, f"granted beside {child}\n{host.told()}"
    host.release(lease)


def test_a_broker_that_was_killed_goes_on_from_its_journal_and_its_unit_comes_back(host):
    lease = host.acquire()
    assert host.run("systemctl", "kill", "--signal=SIGKILL", "voxint-broker")[0] == 0
    host.wait(lambda: host.ask("status")[0] == 200, 60, "systemd starts the broker again")
    answer = host.ask("status")[1]
    assert (answer["state"], answer["lease_id"]) == ("held", lease)
    assert host.state() in {"inactive", "failed"}
    host.release(lease)
    assert host.state() == "active"
