"""Open pages while a network loses everything, and nobody is told: they say that they are old, and go on later."""

from itertools import count
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.webui.chromium import Chromium
from tests.webui.conftest import Push, Site, UiProcess
from tests.webui.lossy import lossy

OLD_MS = 25_000  # 15 s, and what a loaded machine is late
SEEN_MS = 60_000
NUMBERS = count(1)
STALE = """() => new Promise((done, fail) => {
  const begun = performance.now(), stale = document.getElementById("stale");
  const look = new MutationObserver(() => { if (!stale.hidden) done(performance.now() - begun); });
  look.observe(stale, {attributes: true});
  setTimeout(() => fail("the page does not say that it is old"), 60_000);
})"""
"""Answers with the milliseconds until a page says that it is old."""


FILTERED = "/jobs?state=scheduled&tag=lossy"
CASES = [("of the browser", "/types", 1)] + [
    pytest.param(lost, page, 2, marks=pytest.mark.long)
    for lost, page in (("of the browser", FILTERED), ("of the UI", "/types"), ("of the UI", FILTERED))
]
"""What is lost, of which page, and how often: each time takes the quarter of a minute after which a page is old."""


@pytest.mark.parametrize(("lost", "page", "times"), CASES)
def test_an_open_page_says_that_it_is_old_where_the_network_loses_all(
    site: Site, chromium: Chromium, push: Push, tmp_path: Path, lost: str, page: str, times: int
) -> None:
    def look(tab: Page) -> None:
        def expect_live() -> None:
            name = f"lossy-{next(NUMBERS)}"
            push(name, delay="1d", tags=["lossy"])
            expect(tab.locator("main")).to_contain_text(name, timeout=SEEN_MS)
            expect(tab.locator("#stale")).to_be_hidden(timeout=SEEN_MS)

        with lossy(site.daemon) as behind, UiProcess(tmp_path / "ui.log", "--url", behind.url) as ui:
            with lossy(ui.url) as before:
                tab.goto(before.url + page)
                expect_live()
                for _ in range(times):
                    network = before if lost == "of the browser" else behind
                    network.passes.clear()
                    assert tab.evaluate(STALE) < OLD_MS
                    expect(tab.locator("#stale")).to_be_visible()
                    network.passes.set()
                    expect_live()
            assert ui.stop() == 0

    chromium.run(look, strict=False)
