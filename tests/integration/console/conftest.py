"""Consoles for tests: over a database of their own, through the whole application."""

from __future__ import annotations

import pytest
from console_client import open_console, settings_for


@pytest.fixture
def console(tmp_path, database_url, redis_url):
    """Opens consoles; `signed_in=False` for a browser that has not come in, further words are settings."""
    made = []

    def opened(*, signed_in=True, **more):
        settings = settings_for(database_url, redis_url, tmp_path, **more)
        made.append(open_console(settings, signed_in=signed_in))
        return made[-1]

    yield opened
    for browser in made:
        browser.close()
        browser.parts.close()
