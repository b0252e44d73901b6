"""What the stream of a page brings: the page as whoever opened it is shown it, and bare ticks where that cannot be."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from typing import Any
from urllib.parse import quote

import pytest
import trio
from playwright.sync_api import Page, Route, expect
from trio.testing import wait_all_tasks_blocked

from jqd.client import AsyncClient, Client
from jqd.client.tokens import Role
from jqd.testing.clock import ManualClock
from jqd.webui.api import Api
from jqd.webui.app import Ui, create_app
from jqd.webui.config import CHECK_S, UiConfig
from jqd.webui.live import TICK
from jqd.webui.sessions import Me, Session
from tests.webui.chromium import Chromium
from tests.webui.conftest import Guarded, Push, Site
from tests.webui.test_live import BROUGHT

BEGIN = b"retry: 2000\n\n"


class Stream:
    """One stream of a UI in this process."""

    def __init__(self, ui: Ui, connection: Any) -> None:
        self._ui, self._connection = ui, connection

    async def next(self) -> bytes:
        """The next event, of a tick that comes now."""
        assert self._ui.feeds is not None
        for feed in self._ui.feeds._feeds.values():
            feed.tick()
        with trio.fail_after(30):
            event: bytes = await self._connection.receive()
        assert event.endswith(b"\n\n") or not event
        return event

    async def over(self) -> bool:
        """Whether it brings nothing more: what had been brought before this was asked may come first."""
        for _ in range(3):
            if await self.next() in (TICK, b""):
                return True
        return False


@asynccontextmanager
async def stream_of(ui: Ui, app: Any, page: str, session: Session | None = None) -> AsyncIterator[Stream]:
    cookie = {"cookie": f"{ui.cookie}={session.session_id}"} if session is not None else {}
    path = f"/live?page={quote(page, safe='')}"
    async with app.test_client().request(path, headers={"host": "localhost", **cookie}) as connection:
        await connection.send_complete()
        assert await connection.receive() == BEGIN
        yield Stream(ui, connection)
        await connection.disconnect()
        await wait_all_tasks_blocked()
        connection._client_receive.close()  # else it is waited for the last part of an answer that has none


def text_of(event: bytes) -> str:
    """As a browser reads it."""
    lines = event.decode().split("\n")
    assert all(line.startswith("data: ") for line in lines[:-2]), "each line of the page is a line of the event"
    return "\n".join(line.removeprefix("data: ") for line in lines[:-2])


@pytest.fixture
def ui(site: Site) -> Ui:
    return create_app(UiConfig(urls=[site.daemon]))


def logged_in(ui: Ui, guarded: Guarded, role: Role, tenant: str = "") -> Session:
    token = guarded.master.create_token(role, tenant=tenant)["token"]
    client = AsyncClient(guarded.daemon.url, token=token)
    me = Me.of(client.client.me())
    return ui.sessions.begin(Api(client, ui.answers, me.identity), me)[0]


async def test_a_stream_brings_the_page_that_a_request_shows(site: Site, ui: Ui, push: Push) -> None:
    push("echo", "a\rb\r\nc\nd", delay="1d", job_id="stream-lines")
    async with ui.app.test_app() as app:
        for page in ("/", "/types", "/job?id=stream-lines", "/jobs?name=echo&state=scheduled"):
            async with stream_of(ui, app, page) as stream:
                brought = text_of(await stream.next())
            shown = await (await app.test_client().get(page, headers={"host": "localhost"})).get_data(as_text=True)
            assert brought.splitlines() == shown.splitlines()


async def test_a_stream_brings_each_login_its_own_forms(guarded: Guarded) -> None:
    ui = create_app(UiConfig(urls=[guarded.daemon.url]))
    async with ui.app.test_app() as app:
        one, two = (logged_in(ui, guarded, "operator") for _ in range(2))
        for session, other in ((one, two), (two, one)):
            async with stream_of(ui, app, "/tenants", session) as stream:
                brought = text_of(await stream.next())
            assert session.form_token in brought
            assert other.form_token not in brought


async def test_a_stream_of_what_a_role_may_not_see_is_of_bare_ticks(guarded: Guarded) -> None:
    ui = create_app(UiConfig(urls=[guarded.daemon.url]))
    async with ui.app.test_app() as app:
        for session, page in (
            (logged_in(ui, guarded, "viewer"), "/audit"),
            (logged_in(ui, guarded, "viewer", "acme"), "/daemons"),
            (logged_in(ui, guarded, "viewer"), "/job?id=nobody"),
            (logged_in(ui, guarded, "viewer"), "/types?unknown=1"),
        ):
            async with stream_of(ui, app, page, session) as stream:
                assert await stream.next() == TICK, page


async def test_a_stream_brings_nothing_more_once_its_login_is_over(guarded: Guarded) -> None:
    clock = ManualClock()
    ui = create_app(UiConfig(urls=[guarded.daemon.url]), clock=clock)
    async with ui.app.test_app() as app:
        ended, revoked = (logged_in(ui, guarded, "operator") for _ in range(2))
        async with stream_of(ui, app, "/types", ended) as first, stream_of(ui, app, "/types", revoked) as second:
            assert "Types" in text_of(await first.next())
            ui.sessions.end(ended)
            assert await first.over(), "also where others are shown the same just now"
            guarded.master.revoke_token(revoked.me.token_id)
            clock.advance(CHECK_S)
            assert await second.over()
            assert ui.sessions.find(revoked.session_id) is None, "the part that asks now is led to the login"


@pytest.mark.parametrize(
    "page",
    [
        "/nothing",
        "/login",
        "/live",
        "/live?page=/",
        "/jobs/retry",
        "//evil.example/",
        "http://[",
        "/jobs?name=a&name=b",
    ],
)
async def test_a_stream_of_no_page_is_refused(site: Site, ui: Ui, page: str) -> None:
    async with ui.app.test_app() as app:
        answer = await app.test_client().get(f"/live?page={quote(page, safe='')}", headers={"host": "localhost"})
        assert answer.status_code == 422
        assert "there is no stream of" in unescape(await answer.get_data(as_text=True))


async def test_a_stream_of_another_tenant_is_refused(guarded: Guarded) -> None:
    ui = create_app(UiConfig(urls=[guarded.daemon.url]))
    async with ui.app.test_app() as app:
        session = logged_in(ui, guarded, "viewer", "acme")
        headers = {"host": "localhost", "cookie": f"{ui.cookie}={session.session_id}"}
        answer = await app.test_client().get(f"/live?page={quote('/jobs?tenant=other', safe='')}", headers=headers)
        assert answer.status_code == 403


def test_a_part_that_was_exchanged_asks_for_itself(site: Site, chromium: Chromium, push: Push) -> None:
    """As a look through a long list does, which goes on by itself: the stream would lead it back."""

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
            with page.expect_request("**/jobs?cursor=older", timeout=30_000):
                push("echo", None, delay="1d")
            expect(page.locator("#rows")).to_have_text("Older rows")

    chromium.run(look)


def test_an_open_page_asks_for_its_stream_alone(site: Site, chromium: Chromium, push: Push) -> None:
    asked = []

    def look(page: Page) -> None:
        page.goto(f"{site.url}/types")
        page.on("request", lambda request: asked.append(request.url))
        for number in range(2):
            with Client(site.daemon) as client:
                client.push(f"brought-{number}", delay="1d")
            expect(page.locator("#types")).to_contain_text(f"brought-{number}", timeout=30_000)

    chromium.run(look)
    assert [url for url in asked if "/live" not in url and "/static/" not in url] == []


def test_what_is_typed_in_a_live_part_stays_as_it_moves(site: Site, chromium: Chromium, push: Push) -> None:
    job_id = push("echo", 1, delay="1d")

    def look(page: Page) -> None:
        page.goto(f"{site.url}/job?id={job_id}")
        priority = page.get_by_label("Priority")
        priority.fill("7")
        for _ in range(2):
            page.evaluate(BROUGHT)
        expect(priority).to_have_value("7")

    chromium.run(look)


async def test_a_question_for_the_head_of_a_stream_holds_none(site: Site, ui: Ui) -> None:
    async with ui.app.test_app() as app:
        with trio.fail_after(30):
            answer = await app.test_client().head("/live?page=%2F", headers={"host": "localhost"})
            assert answer.status_code == 200
            assert await answer.get_data() == b""
        assert ui.feeds is not None
        assert ui.feeds.listeners == 0
