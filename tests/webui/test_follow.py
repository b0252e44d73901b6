"""Open pages while daemons and the store are killed and come back: each says that it is old, and goes on by itself."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count

import pytest
from playwright.sync_api import Page, expect

from jqd.client import Client
from tests.live.harness import QUICK, Daemon, Pair, ingested, pair, wait_for
from tests.webui.chromium import Chromium
from tests.webui.conftest import UiProcess

SEEN_MS = 60_000  # on a loaded machine; alone each change is seen within 15 s
PAGES = {"/": ".tiles a:has-text('scheduled') b", "/jobs": "#rows", "/types": "#types tbody"}
"""By address: the part that shows jobs."""


@pytest.fixture
def couple() -> Iterator[Pair]:
    with pair(QUICK) as couple:
        yield couple


class Followed:
    """Open pages, each in a browser of its own: one gives six connections to an address, and a page has two."""

    def __init__(self, first: Page, url: str, client: Client, stack: ExitStack) -> None:
        self._client, self._numbers = client, count(1)
        self.pages: dict[str, Page] = {}
        browser = first.context.browser
        assert browser is not None
        for path in PAGES:
            self.pages[path] = browser.new_page()
            stack.callback(self.pages[path].close)
            self.pages[path].goto(url + path)

    def expect_live(self) -> None:
        """A new job is seen, and nothing says that the page is old."""
        wait_for(lambda: self._client.ready()["status"] == "ready", "a daemon takes and runs jobs")
        number = next(self._numbers)
        ingested(self._client, self._client.push(f"live-{number}", 1, delay="1d"))
        for path, page in self.pages.items():
            shown = str(number) if path == "/" else f"live-{number}"
            expect(page.locator(PAGES[path]), path).to_contain_text(shown, timeout=SEEN_MS)
            expect(page.locator("#stale"), path).to_be_hidden(timeout=SEEN_MS)

    def expect_old(self, *paths: str) -> None:
        for path in paths:
            expect(self.pages[path].locator("#stale"), path).to_be_visible(timeout=SEEN_MS)


@pytest.mark.long
def test_open_pages_go_on_after_daemons_and_the_store_were_killed(couple: Pair, chromium: Chromium) -> None:
    server, one, two, base = couple
    flags = ("--store", server.url)
    with (
        UiProcess(base / "ui.log", "--url", one.url, "--url", two.url) as ui,
        Client([one.url, two.url]) as client,
        ExitStack() as again,
    ):

        def look(page: Page) -> None:
            with ExitStack() as stack:
                followed = Followed(page, ui.url, client, stack)
                followed.expect_live()
                one.kill()
                followed.expect_live()
                two.kill()
                followed.expect_old(*PAGES)
                for name, each in (("one", one), ("two", two)):
                    again.enter_context(Daemon(base / name, *flags, bind=each.bind, env=QUICK))
                followed.expect_live()
                server.kill()
                followed.expect_old("/jobs", "/types")
                now = followed.pages["/"].locator("main")
                expect(now).to_contain_text("is not known now: the store does not answer", timeout=SEEN_MS)
                server.start()
                followed.expect_live()

        chromium.run(look, strict=False)
        assert ui.stop() == 0
