"""Every page in Chromium: accessible in both schemes, at home on a phone, reached by Tab, and safe against script."""

from __future__ import annotations

from pathlib import Path

import axe_playwright_python
import pytest
from chromium import PHONE
from sqlalchemy import text

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
PAGES = ("/", "/?q=nothing+like+it", "/runs/{run}", "/runs/{run}?language=de", "/runs/5", "/speakers", "/no/such/page")
SETTINGS = ("/settings/status", "/settings/sign-in", "/settings/record")
EVIL = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"


def violations(page):
    # The page's own rules forbid script from elsewhere: axe comes in beside them, as a browser's extension does.
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then((result) => result.violations)")
    return [(each["id"], [node["html"][:160] for node in each["nodes"]]) for each in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(made, visit, scheme):
    page = visit(made, color_scheme=scheme, bypass_csp=True)
    for path in (*PAGES, *SETTINGS):
        page.goto(made.base + path.format(run=made.run))
        for summary in page.locator("details > summary").all():
            summary.click()
        assert violations(page) == [], (path, scheme)
    stranger = page.context.browser.new_context(color_scheme=scheme, bypass_csp=True).new_page()
    stranger.goto(f"{made.base}/sign-in?link=x")
    assert violations(stranger) == [], ("/sign-in", scheme)
    stranger.context.close()


def test_axe_finds_what_is_broken_on_purpose(made, visit):
    page = visit(made, bypass_csp=True)
    page.evaluate(
        "document.querySelector('main').insertAdjacentHTML('beforeend', '<img src=\"/static/icon.svg\"><input>')"
    )
    assert {name for name, _ in violations(page)} >= {"image-alt", "label"}


def test_no_page_is_wider_than_a_phone(made, visit):
    page = visit(made, viewport=PHONE)
    for path in (*PAGES, *SETTINGS):
        page.goto(made.base + path.format(run=made.run))
        for summary in page.locator("details > summary").all():
            summary.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path


def test_every_control_is_reached_by_tab_and_shows_it(made, visit):
    page = visit(made)
    for path in ("/", f"/runs/{made.run}", "/speakers", "/settings/sign-in"):
        page.goto(made.base + path)
        wanted = page.evaluate(
            "[...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, summary, audio')]"
            ".filter((each) => each.checkVisibility() && !each.disabled).length"
        )
        reached = set()
        for _ in range(3 * wanted + 20):
            page.keyboard.press("Tab")
            seen = page.evaluate(
                "(() => { const e = document.activeElement; if (!e || e === document.body) return null;"
                " e.dataset.seen ??= Math.random(); const s = getComputedStyle(e);"
                " return [e.dataset.seen, s.outlineStyle !== 'none' || e.matches('audio')]; })()"
            )
            if seen:
                assert seen[1], (path, page.evaluate("document.activeElement.outerHTML"))
                reached.add(seen[0])
            if len(reached) >= wanted:
                break
        assert len(reached) >= wanted, (path, len(reached), wanted)


def test_names_and_texts_never_run_as_script(made, visit):
    with made.engine.begin() as connection:
        before = connection.execute(text("SELECT title FROM run WHERE id = 5")).scalar_one()
        connection.execute(text("UPDATE run SET title = :evil, error = :evil WHERE id = 5"), {"evil": EVIL})
    page = visit(made)
    for path in ("/", "/runs/5", "/?q=%3Cscript%3Edocument.title%3D%27owned%27%3C%2Fscript%3E"):
        page.goto(made.base + path)
        assert page.title() != "owned"
        assert page.locator("main img[src=x], main script").count() == 0
    page.goto(f"{made.base}/runs/5")
    assert EVIL in page.locator("h1").inner_text()
    with made.engine.begin() as connection:
        connection.execute(text("UPDATE run SET title = :before WHERE id = 5"), {"before": before})


def test_another_site_s_page_presses_no_button(made, visit, tmp_path):
    page = visit(made)
    trap = tmp_path / "trap.html"
    trap.write_text(f'<form method="post" action="{made.base}/gpu/release"><button>win</button></form>', "utf-8")
    page.goto(trap.as_uri())
    page.get_by_role("button", name="win").click()
    page.wait_for_load_state()
    assert "another site" in page.content() or "Sign in" in page.content()
    with made.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM gpu_phase_request")).scalar_one() == 0


def test_the_words_light_up_while_they_are_played_and_a_word_plays_from_there(made, visit):
    page = visit(made)
    page.goto(f"{made.base}/runs/{made.run}")
    word = page.locator("#line-4 [data-t]").nth(2)
    word.click()
    page.wait_for_function("document.querySelector('.lit') !== null")
    page.wait_for_function("document.querySelector('.lit').closest('.line').id === 'line-4'")
    audio = page.evaluate("document.querySelector('audio').currentTime")
    assert audio >= float(word.get_attribute("data-t")) - 0.5
    page.evaluate("document.querySelector('audio').pause()")


def test_what_was_opened_stays_open_and_goes_on_to_be_refreshed(made, visit):
    def trouble(words):
        with made.engine.begin() as connection:
            connection.execute(text("UPDATE gpu_phase SET last_error = :words"), {"words": words})

    with made.engine.connect() as connection:
        before = connection.execute(text("SELECT last_error FROM gpu_phase")).scalar_one()
    try:
        trouble("the first trouble")
        page = visit(made)
        page.goto(made.base)
        page.locator("#live-top summary").click()
        assert "the first trouble" in page.locator("#live-top details").inner_text()
        trouble("the second trouble")
        page.locator("#live-top details", has_text="the second trouble").wait_for(timeout=20_000)
        assert page.locator("#live-top details[open]").count() == 1
        assert page.evaluate("document.activeElement.matches('#live-top summary')")
        page.locator("#live-top summary").click()
        trouble("the third trouble")
        page.locator("#live-top details", has_text="the third trouble").wait_for(state="attached")
        assert page.locator("#live-top details[open]").count() == 0
    finally:
        trouble(before)


def test_a_page_asks_for_itself_again_only_once_it_was_answered(made, visit):
    page = visit(made)
    held = []

    def hold(route, request):
        if "x-voxint-refresh" in request.headers:
            held.append(route)
        else:
            route.continue_()

    page.route("**/*", hold)
    page.goto(made.base)
    page.wait_for_timeout(4 * 3000)  # a server that is slow is not asked four times meanwhile
    assert len(held) == 1
    with page.expect_request(lambda request: "x-voxint-refresh" in request.headers):
        held[0].continue_()
    page.unroute("**/*", hold)


def test_without_javascript_every_page_and_form_works(made, visit, browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(made.link())
    page.get_by_role("button", name="Sign in").click()
    assert "The language model has the GPU" in page.content()
    page.get_by_role("button", name="Hold for 2 h").click()
    assert "No switch to audio begins by itself" in page.content()
    page.get_by_role("button", name="End the hold").click()
    assert "The hold is gone" in page.content()
    page.goto(f"{made.base}/settings/status")
    assert page.locator("svg.bars rect.bar").count() > 5
    context.close()


def test_nothing_comes_from_another_host(made, visit):
    page = visit(made)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    for path in ("/", f"/runs/{made.run}", "/settings/status"):
        page.goto(made.base + path)
    assert asked
    assert [url for url in asked if not url.startswith(made.base)] == []
