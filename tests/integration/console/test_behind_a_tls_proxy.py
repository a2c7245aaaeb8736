"""The console behind a proxy that ends TLS, over real connections: who is believed, and what is for TLS alone."""

from __future__ import annotations

import math
import re
import threading
import time

import httpx
import numpy as np
import pytest
import uvicorn
from console_client import PASSWORD, settings_for
from ports import free_port
from tls_proxy import TlsProxy

from voxint.console.app import make_console
from voxint.console.server import begin, config_of
from voxint.wiring import make

TOKEN = re.compile(r'name="token" value="([0-9a-f]{64})"')


class Site:
    """A console that is served as `voxint serve` does, and the proxy before it."""

    def __init__(self, folder, database_url, redis_url, **more):
        self.parts = make(settings_for(database_url, redis_url, folder, CONSOLE_PASSWORD=PASSWORD, **more))
        begin(self.parts, "127.0.0.1")
        self.port = free_port()
        app = make_console(self.parts, self.port)
        self._server = uvicorn.Server(config_of(app, self.parts.settings, "127.0.0.1", self.port))
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        until = time.monotonic() + 60
        while not self._server.started:
            assert time.monotonic() < until
            time.sleep(0.02)
        self.proxy = TlsProxy(folder, self.port)
        self._visitors = []

    def visitor(self, base=None, **headers):
        """A browser that believes the proxy's certificate."""
        made = httpx.Client(
            base_url=base or self.proxy.url,
            verify=self.proxy.trust(),
            headers=headers,
            timeout=60,
            trust_env=False,
        )
        self._visitors.append(made)
        return made

    def close(self):
        for each in self._visitors:
            each.close()
        self.proxy.close()
        self._server.should_exit = True
        self._thread.join(30)
        self.parts.close()


@pytest.fixture
def site(tmp_path, database_url, redis_url):
    made = []

    def opened(**more):
        made.append(Site(tmp_path, database_url, redis_url, **more))
        return made[-1]

    yield opened
    for each in made:
        each.close()


def form_token(visitor, path):
    return TOKEN.search(visitor.get(path).text)[1]


def sign_in(visitor, password=PASSWORD, **headers):
    fields = {"token": form_token(visitor, "/sign-in"), "password": password, "who": "Anna", "next": "/"}
    return visitor.post("/sign-in", data=fields, headers=headers)


def press(visitor, **headers):
    fields = {"token": form_token(visitor, "/settings/sign-in"), "hours": "1"}
    return visitor.post("/gpu/hold", data=fields, headers=headers)


def test_signed_in_over_tls_cookies_are_for_tls_alone_and_forms_work(site):
    one = site(TRUSTED_PROXIES="127.0.0.1")
    visitor = one.visitor()
    answer = sign_in(visitor, origin=one.proxy.url)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert all(word in cookie for word in ("Secure", "HttpOnly", "SameSite=lax"))
    page = visitor.get("/")
    assert page.status_code == 200
    assert page.headers["strict-transport-security"].startswith("max-age=")
    assert press(visitor, origin=one.proxy.url).status_code == 303
    assert one.parts.phase_store.control().hold_until is not None
    # The visitor's address is written down, not the proxy's.
    assert "Anna (console, 198.51.100.7)" in {entry.who for entry in one.parts.record.newest()}


def test_over_tls_a_page_of_another_origin_presses_no_button(site):
    one = site(TRUSTED_PROXIES="127.0.0.1")
    visitor = one.visitor()
    sign_in(visitor)
    port = one.proxy.port
    for origin in (f"http://127.0.0.1:{port}", "https://127.0.0.1", f"https://evil.example:{port}", "null"):
        answer = press(visitor, origin=origin)
        assert (answer.status_code, "another site" in answer.text) == (403, True), origin
    assert one.parts.phase_store.control().hold_until is None
    assert press(visitor).status_code == 303  # no origin, and no word of another site: no browser does that


def test_who_guesses_waits_by_the_address_that_the_proxy_tells_and_not_by_one_made_up(site):
    one = site(TRUSTED_PROXIES="127.0.0.1")
    for number in range(5):
        visitor = one.visitor(**{"x-forwarded-for": f"203.0.113.{number}"})
        assert sign_in(visitor, "a wrong password").status_code == 403
    made_up = one.visitor(**{"x-forwarded-for": "203.0.113.99"})
    assert sign_in(made_up).status_code == 429
    one.proxy.comes_from = "198.51.100.8"
    assert sign_in(one.visitor()).status_code == 303


def test_where_no_proxy_is_named_nobody_is_believed(site):
    one = site()
    visitor = one.visitor()
    answer = sign_in(visitor, origin=one.proxy.url)
    assert answer.status_code == 303
    assert "Secure" not in answer.headers["set-cookie"]
    assert "Anna (console, 127.0.0.1)" in {entry.who for entry in one.parts.record.newest()}
    assert press(visitor, origin=one.proxy.url).status_code == 303


def test_only_the_proxy_that_is_named_is_believed(site):
    one = site(TRUSTED_PROXIES="192.0.2.1")
    direct = one.visitor(f"http://127.0.0.1:{one.port}", **{"x-forwarded-proto": "https", "x-forwarded-for": "8.8.8.8"})
    answer = sign_in(direct)
    assert answer.status_code == 303
    assert "Secure" not in answer.headers["set-cookie"]
    assert "strict-transport-security" not in answer.headers
    assert "Anna (console, 127.0.0.1)" in {entry.who for entry in one.parts.record.newest()}


def test_a_name_that_is_not_allowed_is_refused_behind_the_proxy_too(site):
    one = site(TRUSTED_PROXIES="127.0.0.1", CONSOLE_ALLOWED_HOSTS="voxint.example")
    assert one.visitor().get("/sign-in").status_code == 400
    named = one.visitor(host="voxint.example")
    assert named.get("/sign-in").status_code == 200
    # The visitor's cookies go by the name in the address, which is 127.0.0.1 here.
    assert sign_in(named, origin="https://voxint.example").status_code == 303


def test_an_upload_goes_through_the_proxy(site, tmp_path):
    import io
    import wave

    one = site(TRUSTED_PROXIES="127.0.0.1")
    visitor = one.visitor()
    sign_in(visitor)
    sound = io.BytesIO()
    with wave.open(sound, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        tone = 8000 * np.sin(2 * math.pi * 440 * np.arange(32_000) / 16_000)
        file.writeframes(tone.astype(np.int16).tobytes())
    answer = visitor.post(
        "/uploads",
        data={"token": form_token(visitor, "/settings/sign-in")},
        files={"file": ("meeting.wav", sound.getvalue())},
        headers={"origin": one.proxy.url},
    )
    assert answer.status_code in {200, 201, 303}, answer.text
    (run,) = one.parts.run_store.list()
    assert run.title == "meeting"
