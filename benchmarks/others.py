"""What people use today, beside it: `python benchmarks/others.py`. gpu-broker from PyPI, as its users run it.

Its own package, in an environment of its own (build/gpu-broker), with its default intervals and its systemd driver. Two
language models that do not fit the card together, each a stand-in with known times; a request for the one that is not
there makes it switch. There is no systemd here: `systemctl` is a script of ours that starts and stops the stand-ins, and
waits for a stop as the real one does. Measured is the time from the request to its answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from typing import TYPE_CHECKING

from figures import RATIO, Row, median, row
from ground import ROOT, folder
from ports import free_ports
from turn import QUICK_SERVICES, SERVICES, Times

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSION = "0.5.0"
ENVIRONMENT = ROOT / "build" / "gpu-broker"
PROGRAM = ENVIRONMENT / "bin" / "gpu-broker"
PYTHONS = ("python3.12", "python3.13", "python3.14")
"""It wants one of these."""
LIMIT_SECONDS = 120.0
TOKEN = "bench"

SYSTEMCTL = """#!/bin/sh
# A stand-in for systemctl: units are the files UNIT.argv beside this script, one word a line.
verb=$1 unit=$3 here={here}
pid=$(cat "$here/$unit.pid" 2>/dev/null || echo 0)
lives() {{ [ -d "/proc/$pid" ] && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null; }}
case $verb in
  is-active) if lives; then echo active; else echo inactive; exit 3; fi ;;
  start) lives || {{ setsid xargs -a "$here/$unit.argv" -d '\\n' "$here/exec" "$here/$unit.pid" >>"$here/$unit.log" 2>&1 & }} ;;
  stop) if lives; then kill "$pid"; while lives; do sleep 0.01; done; fi ;;
esac
"""
EXEC = '#!/bin/sh\necho $$ >"$1"\nshift\nexec "$@"\n'


def install() -> bool:
    """Put it into an environment of its own; False where that cannot be done here."""
    if PROGRAM.exists():
        return True
    for name in PYTHONS:
        found = shutil.which(name)
        if found is None:
            continue
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        made = subprocess.run([found, "-m", "venv", str(ENVIRONMENT)], capture_output=True, check=False)
        pip = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "-q", f"gpu-broker=={VERSION}"]
        if made.returncode == 0 and subprocess.run(pip, check=False).returncode == 0:
            return True
    return False


def _units(place: Path, times: Times) -> dict[str, int]:
    """The stand-ins as units of the script; their ports."""
    ports = dict(zip(("alpha", "beta"), free_ports(2), strict=True))
    for name, port in ports.items():
        words = [
            *(sys.executable, "-m", "voxint_models.stub", "language_model", f"--port={port}"),
            *(f"--start-seconds={times.start}", f"--stop-seconds={times.stop}"),
        ]
        (place / f"{name}.argv").write_text("\n".join(words) + "\n")
    for name, content in (("systemctl", SYSTEMCTL.format(here=place)), ("exec", EXEC)):
        (place / name).write_text(content)
        (place / name).chmod(0o755)
    return ports


def _configuration(place: Path, ports: dict[str, int], door: int) -> Path:
    models = {
        name: {
            "kind": "llm",
            "runner": "llm_unit",
            "unit": name,
            "endpoint": f"http://127.0.0.1:{port}",
            "served_name": "stub-language_model",
            "vram_mib": 20_000,
            "caps": [name],
            "quality": 60,
            "status": "ready",
        }
        for name, port in ports.items()
    }
    # JSON is YAML.
    catalog = {"defaults": {"resident": "alpha", "vram_total_mib": 24_000, "vram_reserve_mib": 600}, "models": models}
    (place / "catalog.yaml").write_text(json.dumps(catalog))
    configuration = {
        "catalog": str(place / "catalog.yaml"),
        "db": str(place / "broker.db"),
        "events_jsonl": str(place / "events.jsonl"),
        "gpu_stream": False,
        "server": {"host": "127.0.0.1", "port": door},
        "driver": {"kind": "systemd"},
        "inputs": {"staging_dir": str(place / "inputs")},
    }
    path = place / "config.yaml"
    path.write_text(json.dumps(configuration))
    return path


def _ask(door: int, model: str) -> float:
    """A request to a model: the seconds until its answer."""
    body = json.dumps({"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    request = urllib.request.Request(f"http://127.0.0.1:{door}/v1/chat/completions", body, headers)
    begun = time.monotonic()
    with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as answer:
        answer.read()
    return time.monotonic() - begun


@contextlib.contextmanager
def _running(times: Times) -> Iterator[int]:
    """It runs, and has answered once; the port of its door."""
    with folder("gpu-broker") as place:
        door = free_ports(1)[0]
        path = _configuration(place, _units(place, times), door)
        kept = {name: value for name, value in os.environ.items() if name in {"HOME", "LANG", "TMPDIR"}}
        environ = {
            **kept,
            "PATH": f"{place}:{os.environ['PATH']}",
            "BROKER_CONFIG": str(path),
            "BROKER_TOKEN": TOKEN,
            "PYTHONPATH": "",
        }
        with (place / "log").open("ab") as log:
            process = subprocess.Popen([str(PROGRAM), "serve"], env=environ, stdout=log, stderr=log, cwd=place)
        try:
            end = time.monotonic() + LIMIT_SECONDS
            while True:
                try:
                    _ask(door, "alpha")
                    break
                except OSError as error:
                    if time.monotonic() > end or process.poll() is not None:
                        said = (place / "log").read_text(errors="replace")[-1500:]
                        raise SystemExit(f"gpu-broker did not answer: {error}\n{said}") from error
                    time.sleep(0.1)
            yield door
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            for name in ("alpha", "beta"):
                subprocess.run([str(place / "systemctl"), "stop", "--", name], check=False)


def switches(times: Times, count: int) -> list[float]:
    """So many switches from one to the other."""
    with _running(times) as door:
        return [_ask(door, "beta" if number % 2 == 0 else "alpha") for number in range(count)]


def measure_one(times: Times, count: int) -> list[Row]:
    """Rows for these times; none where it cannot be had."""
    if not install():
        print(f"gpu-broker {VERSION} cannot be had here: its rows are left out")
        return []
    seconds = switches(times, count)
    name = f"gpu-broker {VERSION} with services of {times}, a switch"
    return [
        row(name, median(seconds), "s", count),
        row(f"{name}, over stop and start", median(seconds) / times.own, RATIO, count),
    ]


if __name__ == "__main__":
    for each in (*measure_one(QUICK_SERVICES, 10), *measure_one(SERVICES, 2)):
        print(each)
