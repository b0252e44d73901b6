"""Open pages are renewed every two seconds, and say so where they are not."""

import os
import signal
from typing import Any

import pytest
import trio
from playwright.sync_api import Page, Route, expect

from jqd.client.http import Http
from jqd.testing.clock import ManualClock
from jqd.webui.app import create_app
from jqd.webui.config import UiConfig
from tests.webui.chromium import Chromium
from tests.webui.conftest import Guarded, Push, Site, UiProcess

RENEWED = """() => new Promise((done, fail) => {
  document.addEventListener("htmx:after:swap", done, {once: true});
  setTimeout(() => fail("nothing was renewed"), 60_000);
})"""
"""Waits until a page has its live part anew."""


def test_an_open_page_shows_what_is_new(site: Site, chromium: Chromium, push: Push) -> None:
    def look(page: Page) -> None:
        page.goto(site.url)
        tile = page.locator(".tiles a", has_text="scheduled").locator("b")
        before = int(tile.inner_text())
        push("echo", None, delay="1d")
        expect(tile).to_have_text(str(before + 1), timeout=60_000)

    chromium.run(look)


def test_a_page_that_nobody_sees_asks_nothing(site: Site, chromium: Chromium) -> None:
    asked: list[str] = []

    def look(page: Page) -> None:
        page.clock.install()
        page.goto(f"{site.url}/types")
        page.evaluate("Object.defineProperty(document, 'hidden', {configurable: true, get: () => true})")
        page.on("request", lambda request: asked.append(request.url))
        page.clock.run_for(60_000)
        assert asked == []
        page.evaluate("Object.defineProperty(document, 'hidden', {get: () => false})")
        with page.expect_request("**/types"):
            page.clock.run_for(2_000)

    chromium.run(look)


def test_a_part_that_was_exchanged_asks_for_itself(site: Site, chromium: Chromium) -> None:
    """As a look through a long list does, which goes on by itself."""

    def older(route: Route) -> None:
        rows = '<div id="rows" data-hx-get="/jobs?cursor=older" data-hx-target="#rows" data-hx-select="#rows" '
        rows += 'data-hx-swap="outerMorph" data-hx-trigger="tick from:body">Older rows</div>'
        route.fulfill(content_type="text/html", body=rows)

    def look(page: Page) -> None:
        page.route("**/jobs?cursor=older", older)
        page.goto(f"{site.url}/jobs")
        expect(page.locator("#rows")).to_contain_text("echo")
        page.evaluate("htmx.ajax('GET', '/jobs?cursor=older', {target: '#rows', select: '#rows', swap: 'outerHTML'})")
        expect(page.locator("#rows")).to_have_text("Older rows")
        for _ in range(2):
            with page.expect_response("**/jobs?cursor=older", timeout=30_000):
                page.wait_for_timeout(0)
            expect(page.locator("#rows")).to_have_text("Older rows")

    chromium.run(look)


def test_what_is_typed_in_a_live_part_stays_as_it_moves(site: Site, chromium: Chromium, push: Push) -> None:
    job_id = push("echo", 1, delay="1d")

    def look(page: Page) -> None:
        page.goto(f"{site.url}/job?id={job_id}")
        priority = page.get_by_label("Priority")
        priority.fill("7")
        for _ in range(2):
            page.evaluate(RENEWED)
        expect(priority).to_have_value("7")

    chromium.run(look)


def test_open_pages_lead_to_the_login_after_the_ui_was_killed(guarded: Guarded, chromium: Chromium) -> None:
    token, log = guarded.master.create_token("operator")["token"], guarded.ui.log.with_name("killed.log")

    def look(page: Page) -> None:
        with UiProcess(log, "--url", guarded.daemon.url) as killed:
            page.goto(f"{killed.url}/jobs?state=failed")
            page.get_by_label("Token").fill(token)
            page.keyboard.press("Enter")
            page.wait_for_url(f"{killed.url}/jobs?state=failed")
            other = page.context.new_page()
            other.goto(f"{killed.url}/types")
            killed.kill()
        with UiProcess(log, "--url", guarded.daemon.url, bind=killed.url.removeprefix("http://")) as again:
            for each, path in ((page, "%2Fjobs%3Fstate%3Dfailed"), (other, "%2Ftypes")):
                each.bring_to_front()
                expect(each).to_have_url(f"{again.url}/login?next={path}&why=ended", timeout=30_000)
                expect(each.locator("main")).to_contain_text("Your login has ended")
            assert again.stop() == 0

    chromium.run(look, strict=False)


@pytest.mark.long
def test_an_open_page_says_that_it_is_old_where_the_ui_is_silent(guarded: Guarded, chromium: Chromium) -> None:
    log, token = guarded.ui.log.with_name("silent.log"), guarded.master.create_token("operator")["token"]

    def look(page: Page) -> None:
        with UiProcess(log, "--url", guarded.daemon.url) as silent:
            page.goto(f"{silent.url}/types")
            page.get_by_label("Token").fill(token)
            page.keyboard.press("Enter")
            page.evaluate(RENEWED)
            expect(page.locator("#stale")).to_be_hidden()
            os.kill(silent.child.pid, signal.SIGSTOP)
            try:
                expect(page.locator("#stale")).to_be_visible(timeout=30_000)
            finally:
                os.kill(silent.child.pid, signal.SIGCONT)
            expect(page.locator("#stale")).to_be_hidden(timeout=60_000)
            page.evaluate(RENEWED)
            assert silent.stop() == 0

    chromium.run(look, strict=False)


async def test_a_part_of_no_login_leads_the_whole_page_to_one(guarded: Guarded) -> None:
    ui = create_app(UiConfig(urls=[guarded.daemon.url]))
    browser, headers = ui.app.test_client(), {"host": "localhost", "cookie": f"{ui.cookie}=forgotten"}
    part = await browser.get("/jobs", headers=headers | {"hx-request": "true"})
    assert part.headers["hx-redirect"] == "/login?next=%2Fjobs&why=ended"
    assert (await browser.get("/jobs", headers=headers)).status_code == 303
    await ui.close()


async def test_pages_that_look_within_a_second_ask_each_thing_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    call = Http.call

    def counted(http: Http, method: str, path: str, **how: Any) -> Any:
        asked.append(f"{method} {path} {how.get('params')}")
        return call(http, method, path, **how)

    monkeypatch.setattr(Http, "call", counted)
    ui = create_app(UiConfig(urls=[site.daemon]), clock=ManualClock())  # which stands still
    for path in ["/job?id=" + site.jobs["waiting"], "/type?name=echo", *(path for _, path in ui.navigation)]:
        asked.clear()

        async def look(path: str = path) -> None:
            answer = await ui.app.test_client().get(path, headers={"host": "localhost"})
            assert answer.status_code == 200

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(look)
        assert len(asked) == len(set(asked)), asked
    await ui.close()
