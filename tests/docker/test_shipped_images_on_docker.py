"""The images that are shipped, built and used: `make docker-images`. Minutes, and gigabytes with CUDA=1.

The CPU tier transcribes a recording with its real models. The CUDA images are built on the same base image, as NVIDIA's
libraries come as packages; without a GPU there is one thing that they can show: that they say so and end.
"""

from __future__ import annotations

import json
import os
import re
import time

import pytest
from docker_stack import MODELS, Stack
from real_engine import BUILD, ROOT, run

pytestmark = [pytest.mark.images, pytest.mark.timeout(3000)]
CPU = ("compose.yaml", "compose.cpu.yaml", "tests/docker/compose.cpu-test.yaml")
SPEECH = ROOT / "examples" / "speech"
SETTINGS = {
    "LLM_ENABLED": "false",
    "CONSOLE_PASSWORD": "a password for tests alone",
    "SECRET_KEY": "0123456789abcdef0123456789abcdef",
}


@pytest.fixture(scope="module")
def built(engine):
    """What was built so far; written down as it grows."""
    found = {"base_mb": size(engine, engine.base), "built": []}
    yield found["built"]
    (BUILD / "images.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def size(engine, image):
    return round(int(engine.cli("image", "inspect", "-f", "{{.Size}}", image).stdout) / 1e6)


def build(engine, compose, built, files, *services):
    """By the shipped files; gives the entry of each service's image."""
    names = [part for name in files for part in ("-f", name)]
    environ = {**os.environ, **SETTINGS, "DOCKER_HOST": engine.host, "BASE_IMAGE": engine.base}
    entries = {}
    for service in services:
        began = time.monotonic()
        run([*compose, *names, "build", service], cwd=ROOT, env=environ, timeout=2400)
        config = json.loads(run([*compose, *names, "config", "--format", "json"], cwd=ROOT, env=environ).stdout)
        image = config["services"][service]["image"]
        took = round(time.monotonic() - began)
        entries[service] = {"image": image, "mb": size(engine, image), "seconds": took, "said": "built"}
        built.append(entries[service])
    return entries


def words(text):
    return set(re.findall(r"[a-z]{5,}", text.lower()))


def test_the_cpu_tier_transcribes_a_recording_with_its_real_models(engine, compose, built):
    entries = build(engine, compose, built, CPU[:2], "api", *MODELS)
    stack = Stack(engine, compose, "voxint-images", CPU, SETTINGS)
    stack.down()
    try:
        stack.up()

        def healthy():
            states = [one for found in stack.states("api", *MODELS).values() for one in found]
            return all(one.get("Health", {}).get("Status") == "healthy" for one in states)

        stack.wait(healthy, 180, "the console and the models are healthy")
        audio = (SPEECH / "museum.ogg").read_bytes().hex()
        write = "import sys; open('/media/voxint/museum.ogg', 'wb').write(bytes.fromhex(sys.stdin.read()))"
        stack.inside("api", "python3", "-c", write, input=audio)
        number = int(stack.inside("api", "voxint", "runs", "add", "/media/voxint/museum.ogg").stdout.split()[0])
        began = time.monotonic()
        stack.wait_done([number], 600)
        took = round(time.monotonic() - began)
        said = stack.inside("api", "voxint", "runs", "export", str(number), "--format", "txt").stdout
        wanted = words((SPEECH / "museum.txt").read_text(encoding="utf-8"))
        assert len(words(said) & wanted) >= 0.8 * len(wanted), said
        for service in MODELS:
            entries[service]["said"] = f"healthy; a recording of {SPEECH.name} was done {took} s after it was added"
        entries["api"]["said"] = "console healthy, migration done, worker and beat at work"
    finally:
        stack.close()


@pytest.mark.skipif(not os.environ.get("CUDA"), reason="CUDA=1 builds them: gigabytes, and many minutes")
@pytest.mark.parametrize("service", MODELS)
def test_a_cuda_image_without_a_gpu_says_so_and_ends(engine, compose, built, service):
    entry = build(engine, compose, built, ("compose.yaml", "compose.gpu.yaml"), service)[service]
    command = ["run", "--rm", "--network", "none", "-e", "MODEL_DEVICE=cuda", "--read-only", "--tmpfs", "/tmp"]
    done = engine.cli(*command, entry["image"], timeout=180, check=False)
    entry["said"] = f"exit {done.returncode}: {done.stderr.strip().splitlines()[-1][:160]}"
    assert done.returncode not in {0, 125, 126, 127}, done.stderr
    assert "gpu" in done.stderr.lower() or "cuda" in done.stderr.lower() or "weights" in done.stderr.lower(), (
        done.stderr
    )
