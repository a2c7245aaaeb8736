"""A console over a test's own database, as a browser sees it: signed in, and with the token of its forms at hand."""

from __future__ import annotations

import re

from starlette.testclient import TestClient

from voxint.console.app import make_console
from voxint.settings import load_settings
from voxint.wiring import make

LEASES = {f"GPU_LEASE_{name}_URL": "http://127.0.0.1:9/gpu" for name in ("ACQUIRE", "RELEASE", "STATUS")}
BASE = "http://127.0.0.1:8080"
PASSWORD = "correct horse battery"
_TOKEN = re.compile(r'name="token" value="([0-9a-f]{64})"')


class Browser:
    """One browser with its cookies."""

    def __init__(self, parts, **more):
        self.parts = parts
        self.http = TestClient(
            make_console(parts), base_url=BASE, raise_server_exceptions=False, follow_redirects=False, **more
        )

    def __getattr__(self, name):
        return getattr(self.http, name)

    def sign_in(self, who="Anna"):
        """Come in by a link, as somebody at the machine does."""
        link = self.parts.access.make_link()
        answer = self.http.post(
            "/sign-in", data={"token": self.token(f"/sign-in?link={link}"), "link": link, "who": who, "next": "/"}
        )
        assert answer.status_code == 303, answer.text
        return self

    def token(self, path="/settings/sign-in"):
        """The token that the forms of a page carry."""
        page = self.http.get(path)
        found = _TOKEN.search(page.text)
        assert found, page.text
        return found[1]

    def send(self, path, **fields):
        """A form of these pages, sent."""
        return self.http.post(path, data={"token": self.token(), **fields}, headers={"origin": BASE})

    def close(self):
        self.http.close()


def settings_for(database_url, redis_url, media_root, **more):
    """Settings of a console with GPU sharing, whose broker and services are not there."""
    return load_settings(
        {
            "DATABASE_URL": database_url,
            "REDIS_URL": redis_url,
            "MEDIA_ROOT": str(media_root),
            "COMPUTE_TIER": "simulated",
            "GPU_PHASE_ENABLED": "true",
            "SERVICE_CONTROL": "process",
            "SERVICE_STATE_DIR": str(media_root / "state"),
            **LEASES,
            **more,
        }
    )


def open_console(settings, *, signed_in=True):
    """A browser at a console with these settings; close both it and its parts."""
    browser = Browser(make(settings))
    return browser.sign_in() if signed_in else browser
