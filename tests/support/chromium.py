"""The system's Chromium, driven by playwright; and a console over servers and a made day of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
import urllib.request

from playwright.sync_api import sync_playwright
from ports import free_port

from voxint.access.address import link_address
from voxint.access.store import Access
from voxint.db.engine import make_engine
from voxint.db.migrate import upgrade
from voxint.standalone.postgres import EmbeddedPostgres
from voxint.standalone.valkey import EmbeddedValkey

ARGUMENTS = [
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=no-user-gesture-required",
]
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 740}
TOKEN = "a-token-of-these-tests"


def path():
    """Where Chromium is."""
    names = (os.environ.get("CHROMIUM") or "chromium", "chromium-browser", "google-chrome")
    return next((found for found in map(shutil.which, names) if found), None)


@contextlib.contextmanager
def chromium():
    """A Chromium that ends with the block."""
    sandbox = [] if os.geteuid() else ["--no-sandbox"]
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path(), args=[*ARGUMENTS, *sandbox])
        yield browser
        browser.close()


class MadeConsole:
    """A console as a process, over a database that a test fills. No workers: nothing moves by itself."""

    def __init__(self, folder, **settings):
        self.folder = folder
        self.media = folder / "media"
        self._postgres = EmbeddedPostgres(folder / "pg", folder / "pg.log")
        self._valkey = EmbeddedValkey(folder / "vk", folder / "vk.log")
        self._postgres.start()
        self._valkey.start()
        self._postgres.make_database("voxint")
        url = self._postgres.url("voxint")
        self.engine = make_engine(url)
        upgrade(self.engine)
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        nobody = "http://127.0.0.1:9"
        self.environ = {
            "DATABASE_URL": url,
            "REDIS_URL": self._valkey.url,
            "MEDIA_ROOT": str(self.media),
            "COMPUTE_TIER": "simulated",
            "GPU_PHASE_ENABLED": "true",
            "SERVICE_CONTROL": "process",
            "SERVICE_STATE_DIR": str(folder / "state"),
            "CONSOLE_BIND": f"127.0.0.1:{self.port}",
            "API_TOKEN": TOKEN,
            **{f"GPU_LEASE_{name}_URL": f"{nobody}/gpu" for name in ("ACQUIRE", "RELEASE", "STATUS")},
            **{f"{name}_URL": nobody for name in ("WHISPER", "PYANNOTE", "TITANET")},
            **settings,
        }
        self._log = (folder / "console.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "voxint", "serve"],
            env={**os.environ, **self.environ},
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        until = time.monotonic() + 120
        while not self._answers():
            assert time.monotonic() < until, (folder / "console.log").read_text()
            assert self._process.poll() is None, (folder / "console.log").read_text()
            time.sleep(0.1)

    def _answers(self):
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"{self.base}/healthz", timeout=5).status == 200
        return False

    def link(self):
        """An address that signs in."""
        from datetime import timedelta

        return link_address(self.base, Access(self.engine, timedelta(hours=1)).make_link())

    def close(self):
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)
        self._log.close()
        self.engine.dispose()
        self._valkey.stop()
        self._postgres.stop()


def sign_in(page, link, who="Anna"):
    """Come in by a link."""
    page.goto(link)
    page.get_by_label("Your name").fill(who)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(lambda url: "sign-in" not in url)
