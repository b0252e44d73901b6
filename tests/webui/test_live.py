"""Open pages find back to their stream: also where the first answer was none."""

import os
import signal
from typing import Any

import pytest
import trio
from playwright.sync_api import Page, Route, expect

from jqd.client import AsyncClient
from jqd.client.http import Http
from jqd.testing.clock import ManualClock
from jqd.webui.api import Answers, Api
from jqd.webui.app import create_app
from jqd.webui.config import UiConfig
from jqd.webui.feed import Feeds
from jqd.webui.live import TICK
from jqd.webui.sessions import Me
from tests.webui.chromium import Chromium
from tests.webui.conftest import Guarded, Push, Site, UiProcess

BROUGHT = """() => new Promise((done, fail) => {
  document.addEventListener("htmx:sse:after:message", done, {once: true});
  setTimeout(() => fail("nothing was brought"), 60_000);
})"""
"""Waits for what a page's stream brings."""


def test_a_page_whose_stream_was_refused_at_first_asks_again(site: Site, chromium: Chromium, push: Push) -> None:
    asked = []

    def refuse_once(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) == 1:
            route.fulfill(status=503, body="too many pages are open")
        else:
            route.continue_()

    def look(page: Page) -> None:
        page.route("**/live*", refuse_once)
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
        with page.expect_request("**/live*"):
            held[0].continue_()

    chromium.run(look)


def test_open_pages_lead_to_the_login_after_the_ui_was_killed(guarded: Guarded, chromium: Chromium) -> None:
    token, log = guarded.master.create_token("operator")["token"], guarded.ui.log.with_name("killed.log")

    def look(page: Page) -> None:
        with UiProcess(log, "--url", guarded.daemon.url) as killed:
            page.goto(f"{killed.url}/jobs?state=failed")
            page.get_by_label("Token").fill(token)
            with page.expect_request("**/live*"):
                page.keyboard.press("Enter")
            other = page.context.new_page()
            with other.expect_request("**/live*"):
                other.goto(f"{killed.url}/types")
            killed.kill()
        with UiProcess(log, "--url", guarded.daemon.url, bind=killed.url.removeprefix("http://")) as again:
            for each, path in ((page, "%2Fjobs%3Fstate%3Dfailed"), (other, "%2Ftypes")):
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
            with page.expect_request("**/live*"):
                page.keyboard.press("Enter")
            page.evaluate(BROUGHT)
            expect(page.locator("#stale")).to_be_hidden()
            os.kill(silent.child.pid, signal.SIGSTOP)
            try:
                expect(page.locator("#stale")).to_be_visible(timeout=30_000)
            finally:
                os.kill(silent.child.pid, signal.SIGCONT)
            expect(page.locator("#stale")).to_be_hidden(timeout=60_000)
            page.evaluate(BROUGHT)
            assert silent.stop() == 0

    chromium.run(look, strict=False)


async def test_the_stream_of_no_login_is_one_tick_and_is_asked_for_again_after_seconds(guarded: Guarded) -> None:
    ui = create_app(UiConfig(urls=[guarded.daemon.url]))
    browser, headers = ui.app.test_client(), {"host": "localhost", "cookie": f"{ui.cookie}=forgotten"}
    answer = await browser.get("/live", headers=headers | {"hx-request": "true"})
    assert (answer.status_code, answer.content_type) == (200, "text/event-stream")
    assert await answer.get_data() == b"retry: 5000\n" + TICK
    part = await browser.get("/jobs", headers=headers | {"hx-request": "true"})
    assert part.headers["hx-redirect"] == "/login?next=%2Fjobs&why=ended"
    for path in ("/live", "/jobs"):
        assert (await browser.get(path, headers=headers)).status_code == 303
    await ui._end()


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
    await ui._end()


async def test_a_feed_goes_on_by_the_client_of_who_is_still_there(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jqd.webui.feed.QUIET_S", 0.2)
    followed = trio.Event()
    first, second, third = (Api(AsyncClient(site.daemon, timeout_s=5), Answers(ManualClock()), "me") for _ in range(3))
    counters = second.client.counters

    def note() -> Any:
        followed.set()
        return counters()

    monkeypatch.setattr(second.client, "counters", note)
    async with trio.open_nursery() as nursery:
        feeds = Feeds(nursery)
        with trio.fail_after(30):
            async with feeds.listen(first) as feed, feeds.listen(second) as same:
                await feed.wait_tick()
                first.close()  # as a logout does
                await followed.wait()
                await same.wait_tick()
                async with feeds.listen(third) as joined:
                    await joined.wait_tick()
                    assert feed is same is joined
    second.close()
    third.close()


async def test_the_stream_of_a_login_that_has_ended_ends_with_its_next_tick(site: Site) -> None:
    ui = create_app(UiConfig(urls=[site.daemon]))
    clients = [AsyncClient(site.daemon, timeout_s=5) for _ in range(2)]
    ending, staying = (ui.sessions.begin(Api(each, ui.answers, "me"), Me("operator"))[0] for each in clients)
    with trio.fail_after(30):
        async with ui.app.test_app() as app:
            streams = []
            for session in (ending, staying):
                headers = {"host": "localhost", "cookie": f"{ui.cookie}={session.session_id}"}
                streams.append(app.test_client().request("/live", headers=headers))
            async with streams[0] as ended, streams[1] as going:
                for each in (ended, going):
                    await each.send_complete()
                    assert b"retry" in await each.receive()
                ui.sessions.end(ending)
                while last := await ended.receive():
                    assert last == TICK
                assert await going.receive() == TICK
                ui.close_streams()
