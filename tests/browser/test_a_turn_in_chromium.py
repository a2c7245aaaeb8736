"""The whole way in Chromium, on the real stack: upload, wait, audio now, watch, read, take out, rename; and an alert."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest
from chromium import DESKTOP
from made_wav import made_wav

pytestmark = pytest.mark.timeout(900)
UP_SECONDS = 240
LINK = re.compile(r"(http://\S+/sign-in\?link=\S+)\n")
"""A whole line with it: it is written after the one that says `ready`."""


class Stack:
    """`voxint standalone --stand-ins` on a folder of its own."""

    def __init__(self, folder):
        self.home = folder / "home"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPU_", "LLM_", "VOXINT_"))}
        self.environ = {
            **kept,
            "VOXINT_HOME": str(self.home),
            "GPU_PHASE_TICK_SECONDS": "5",
            "GPU_PHASE_MIN_DWELL_SECONDS": "3600",
        }
        self.log = (folder / "standalone.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "voxint", "standalone", "--stand-ins"],
            env=self.environ,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        log = folder / "standalone.log"
        self.wait(lambda: self.process.poll() is not None or LINK.search(log.read_text()), "it gave no link")
        found = LINK.search(log.read_text())
        assert found, log.read_text()
        self.link = found[1]

    def wait(self, condition, what, seconds=UP_SECONDS):
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, what
            time.sleep(0.2)

    def voxint(self, *arguments):
        return subprocess.run(
            [sys.executable, "-m", "voxint", *arguments], env=self.environ, capture_output=True, text=True, check=False
        )

    def gpu_phase_workers(self):
        found = []
        for process in psutil.process_iter():
            try:
                line = process.cmdline()
                if "--gpu-phase" in line and process.environ().get("VOXINT_HOME") == str(self.home):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(90)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(20)
        self.voxint("standalone", "--stop")
        self.log.close()


@pytest.fixture
def stack(tmp_path):
    made = Stack(tmp_path)
    yield made
    made.close()


@pytest.fixture
def sound(tmp_path):
    return made_wav(tmp_path / "My talk.wav", 4)


def test_upload_wait_audio_now_read_take_out_rename_and_the_alert(stack, visit, sound):
    page = visit(stack.link, viewport=DESKTOP)
    page.set_default_timeout(120_000)

    page.locator("input[type=file]").set_input_files(sound)
    page.get_by_role("button", name="Upload").click()
    page.get_by_text("is queued", exact=False).first.wait_for()
    page.get_by_text("Waiting for the GPU. 1 recording is queued").wait_for()

    page.get_by_role("button", name="Audio now").click()
    page.get_by_text("The switch to audio begins").wait_for()

    # Min dwell is an hour here: the GPU goes back because it is asked to, once nothing is left to do with it.
    page.get_by_text("waits for the language model").first.wait_for(timeout=300_000)
    page.get_by_role("button", name="Release").click()
    page.get_by_text("The hand-back begins").wait_for()
    page.get_by_role("link", name="My talk").click()
    page.locator("[data-state=done]").wait_for(timeout=300_000)
    history = json.loads(stack.voxint("gpu-phase", "history", "--json").stdout)
    passed = [row["to"] for row in history]
    assert passed.index("acquiring") < passed.index("starting_services") < passed.index("audio")

    page.locator("[data-lines] .line").first.wait_for()
    assert page.locator("audio").count() == 1
    for form in ("txt", "srt", "vtt", "json", "md"):
        with page.expect_download() as waiting:
            page.locator(f"[data-form={form}]").click()
        taken = waiting.value
        assert taken.suggested_filename == f"My talk.{form}"
        assert taken.path().stat().st_size

    field = page.locator("#speakers ~ form input[name=name]").first
    field.fill("Anna <b>Berg</b>")
    page.locator("#speakers ~ form button").first.click()
    page.get_by_text("is Anna <b>Berg</b>.").wait_for()
    assert "Anna <b>Berg</b>" in page.locator(".who").first.inner_text()
    page.get_by_role("link", name="Speakers").click()
    assert page.locator("input[name=name]").first.input_value() == "Anna <b>Berg</b>"

    page.goto(page.url.replace("/speakers", "/"))
    stopped = stack.gpu_phase_workers()
    assert stopped
    for process in stopped:
        process.send_signal(signal.SIGSTOP)
    try:
        page.get_by_role("alert").get_by_text("has not run since").wait_for(timeout=300_000)
        assert "has not run since" in page.title()
    finally:
        for process in stopped:
            process.send_signal(signal.SIGCONT)
