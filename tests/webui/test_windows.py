"""Many windows of one browser over plain HTTP, which opens six connections to one address: all load and are live."""

import pytest
from playwright.sync_api import Page, expect

from tests.webui.chromium import Chromium
from tests.webui.conftest import Push, Site

WINDOWS = 8


@pytest.mark.long
def test_one_window_more_than_a_browser_has_connections_loads_and_is_live(
    site: Site, chromium: Chromium, push: Push
) -> None:
    push("windows", delay="1d", tags=["first"])

    def look(page: Page) -> None:
        streams = 0

        def count(change: int) -> None:
            nonlocal streams
            streams += change

        tabs = [page, *(page.context.new_page() for _ in range(WINDOWS - 1))]
        for tab in tabs:
            tab.on("request", lambda request: count("/live" in request.url))
            tab.on("requestfinished", lambda request: count(-("/live" in request.url)))
            tab.on("requestfailed", lambda request: count(-("/live" in request.url)))
            tab.goto(f"{site.url}/jobs?name=windows")
        push("windows", delay="1d", tags=["second"])
        for tab in tabs:
            expect(tab.locator("#rows")).to_contain_text("second", timeout=60_000)
            expect(tab.locator("#stale")).to_be_hidden()
        assert streams == 4
        tabs[0].close()
        tabs[1].goto(f"{site.url}/audit")  # which is not live
        for tab in tabs[4:6]:
            with tab.expect_request("**/live*", timeout=60_000):
                tab.wait_for_timeout(0)
        push("windows", delay="1d", tags=["third"])
        for tab in tabs[2:]:
            expect(tab.locator("#rows")).to_contain_text("third", timeout=60_000)

    chromium.run(look)
