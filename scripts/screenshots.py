"""Writes docs/images: each page in both schemes and at a phone's width, over a made day (tests/support/made_day.py).

`make screenshots` runs it. A picture that is larger than it may be ends it with exit status 1.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import made_day  # noqa: E402 - it is found by the line above
from chromium import DESKTOP, PHONE, MadeConsole, chromium, sign_in  # noqa: E402

IMAGES = ROOT / "docs" / "images"
MOST_BYTES = 200_000
PAGES = (
    ("runs", "/"),
    ("run", "/runs/{run}"),
    ("speakers", "/speakers"),
    ("status", "/settings/status"),
    ("access", "/settings/sign-in"),
)
VIEWS = (("light", "light", DESKTOP), ("dark", "dark", DESKTOP), ("phone", "light", PHONE))


def main() -> int:
    """Take them all."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        console = MadeConsole(Path(folder))
        try:
            made_day.made_phase(console.engine)
            run = made_day.made_recordings(console.engine, console.media)
            for view, scheme, viewport in VIEWS:
                context = browser.new_context(viewport=viewport, color_scheme=scheme)
                page = context.new_page()
                page.goto(console.link())
                page.screenshot(path=IMAGES / f"sign-in-{view}.png")
                sign_in(page, console.link())
                for name, path in PAGES:
                    page.goto(console.base + path.format(run=run))
                    page.wait_for_load_state("networkidle")
                    page.screenshot(path=IMAGES / f"{name}-{view}.png")
                context.close()
        finally:
            console.close()
    large = [path.name for path in sorted(IMAGES.glob("*.png")) if path.stat().st_size > MOST_BYTES]
    for name in large:
        print(f"{name} is larger than {MOST_BYTES:,} bytes", file=sys.stderr)
    return 1 if large else 0


if __name__ == "__main__":
    sys.exit(main())
