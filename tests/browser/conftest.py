"""One Chromium for all browser tests, and one console over a made day."""

from __future__ import annotations

import made_day
import pytest
from chromium import DESKTOP, MadeConsole, chromium, path, sign_in


@pytest.fixture(scope="session")
def browser():
    assert path(), "there is no Chromium: `make test-browser` installs it"
    with chromium() as found:
        found.new_context().close()
        yield found


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    console = MadeConsole(tmp_path_factory.mktemp("console"))
    made_day.made_phase(console.engine)
    console.run = made_day.made_recordings(console.engine, console.media)
    yield console
    console.close()


@pytest.fixture
def visit(browser):
    """Opens pages in contexts of their own; what a page's script complains about fails the test."""
    opened, wrong = [], []

    def visit(console_or_link, *, viewport=None, **more):
        context = browser.new_context(viewport=viewport or DESKTOP, **more)
        context.set_default_timeout(60_000)
        opened.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        sign_in(page, console_or_link if isinstance(console_or_link, str) else console_or_link.link())
        return page

    yield visit
    for context in opened:
        context.close()
    assert wrong == []
