"""Open pages find back to their stream: also where the first answer was none."""

from playwright.sync_api import Page, Route, expect

from tests.webui.chromium import Chromium
from tests.webui.conftest import Push, Site


def test_a_page_whose_stream_was_refused_at_first_asks_again(site: Site, chromium: Chromium, push: Push) -> None:
    asked = []

    def refuse_once(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) == 1:
            route.fulfill(status=503, body="too many pages are open")
        else:
            route.continue_()

    def look(page: Page) -> None:
        page.route("**/live", refuse_once)
        page.goto(site.url)
        tile = page.locator(".tiles a", has_text="scheduled").locator("b")
        before = int(tile.inner_text())
        push("echo", None, delay="1d")
        expect(tile).to_have_text(str(before + 1), timeout=60_000)

    chromium.run(look, strict=False)
    assert len(asked) == 2, "and holds the one it has"


def test_a_page_is_live_where_the_stream_s_script_comes_last(site: Site, chromium: Chromium) -> None:
    def look(page: Page) -> None:
        held: list[Route] = []
        page.route("**/hx-sse.min.js", lambda route: held.append(route))
        page.goto(site.url, wait_until="commit")
        page.wait_for_function("() => typeof htmx !== 'undefined'")
        page.evaluate("new Promise(done => setTimeout(done))")  # what htmx had put off until after its own script
        with page.expect_request("**/live"):
            held[0].continue_()

    chromium.run(look)
