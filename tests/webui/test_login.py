"""Logging in at a daemon that asks for tokens: what a role may, and how a login ends."""

import re
from typing import Any, cast

import httpx2
import pytest
import trio
from playwright.sync_api import Page
from structlog.testing import capture_logs

from jqd.client import AsyncClient, Client, ClientClosed, Unreachable
from jqd.tenants.tokens import SLOTS
from jqd.testing.clock import ManualClock
from jqd.webui.api import Answers, Api
from jqd.webui.app import ClientFactory, Ui, create_app
from jqd.webui.config import NOTE, UiConfig
from jqd.webui.login import REVOKE_S, revoke_all
from jqd.webui.sessions import Me, Session
from tests.webui.chromium import Chromium
from tests.webui.conftest import Guarded, UiProcess

ORIGIN = {"origin": "http://localhost", "host": "localhost"}


def test_without_a_login_every_page_leads_there_and_back(guarded: Guarded) -> None:
    answer = httpx2.get(f"{guarded.url}/jobs?state=failed")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?next=%2Fjobs%3Fstate%3Dfailed"
    token = guarded.master.create_token("viewer")["token"]
    guarded.log_in(token, "/jobs?state=failed")
    assert guarded.answer.headers["location"] == "/jobs?state=failed"
    cookie = guarded.answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert "Secure" not in cookie, "this UI speaks plain HTTP"
    assert token not in cookie


@pytest.mark.parametrize("token", ["", "wrong", "ü\n"])
def test_a_wrong_token_lets_nobody_in_and_is_not_repeated(guarded: Guarded, token: str) -> None:
    browser = guarded.log_in(token)
    assert guarded.answer.status_code in (403, 422)
    assert 'value="wrong"' not in guarded.answer.text
    assert browser.get("/").status_code == 303


def test_a_viewer_sees_grey_buttons_and_is_refused_all_the_same(guarded: Guarded) -> None:
    job_id = guarded.master.push("echo", 1, delay="1d")
    browser = guarded.log_in(guarded.master.create_token("viewer")["token"])
    page = browser.get(f"/job?id={job_id}").text
    assert re.search(r"<button class=\"danger\" disabled[^>]*>Cancel", page)
    assert re.search(r"<button class=\"danger\" disabled[^>]*>Delete all", browser.get("/jobs?state=failed").text)
    assert browser.get("/bulk?act=delete&state=failed&before=2030-01-01T00:00:00Z").status_code == 403
    form_token = page.split('name="form_token" value="')[1].split('"')[0]
    answer = browser.post("/job/cancel", data={"id": job_id, "form_token": form_token})
    assert answer.status_code == 403
    assert "viewer" in answer.text or "role" in answer.text
    assert guarded.master.get(job_id).state != "cancelled"


def test_a_tenant_sees_its_own_counts(guarded: Guarded) -> None:
    token = guarded.master.create_token("operator", tenant="acme")["token"]
    with Client(guarded.daemon.url, token=token) as client:
        client.push("echo", 1, delay="1d")
    browser = guarded.log_in(token)
    page = browser.get("/")
    assert page.status_code == 200
    assert "of acme" in page.text


def test_a_revoked_token_ends_the_login(guarded: Guarded) -> None:
    made = guarded.master.create_token("operator")
    browser = guarded.log_in(made["token"])
    assert browser.get("/jobs").status_code == 200
    guarded.master.revoke_token(made["token_id"])
    answer = browser.get("/jobs?state=failed")
    assert answer.headers["location"].startswith("/login?next=")
    assert "has ended" in browser.get(answer.headers["location"]).text


def test_who_logs_out_leaves_no_token_behind(guarded: Guarded) -> None:
    browser = guarded.log_in(guarded.master.create_token("operator", note="mine")["token"])
    before = {each["token_id"] for each in guarded.master.tokens() if each["note"] == "ui"}
    page = browser.get("/").text
    form_token = page.split('name="form_token" value="')[1].split('"')[0]
    assert browser.post("/logout", data={"form_token": form_token}).status_code == 303
    assert browser.get("/").status_code == 303
    after = {each["token_id"] for each in guarded.master.tokens() if each["note"] == "ui"}
    assert len(before - after) == 1


def test_a_login_ends_the_oldest_where_as_many_are_valid_as_may_be(guarded: Guarded) -> None:
    made = guarded.master.create_token("operator")
    with guarded.client(made["token"]) as client:
        colleague = client.derive_token(note="for Bob")
        oldest = guarded.log_in(made["token"])
        for _ in range(SLOTS - 2):
            client.derive_token(note=NOTE)
        assert oldest.get("/").status_code == 200
        assert guarded.log_in(made["token"]).get("/").status_code == 200
        assert oldest.get("/jobs?state=failed").headers["location"].endswith("why=ended")
        assert colleague["token_id"] in {each["token_id"] for each in client.tokens()}


async def test_a_login_that_another_one_pushes_out_leaves_no_token_behind(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jqd.webui.sessions.SESSIONS_MAX", 1)
    made = guarded.master.create_token("viewer")
    ui = create_app(UiConfig(urls=[guarded.daemon.url]))
    headers = {"origin": "http://localhost", "host": "localhost", "content-length": str(len(made["token"]) + 6)}
    for _ in range(3):
        answer = await ui.app.test_client().post("/login", form={"token": made["token"]}, headers=headers)
        assert answer.status_code == 303
    ui.sessions.close()
    rows = guarded.master.tokens()
    assert len([each for each in rows if each["derived_from"] == made["token_id"]]) == 1


async def test_who_is_revoked_sees_nothing_that_others_with_the_same_rights_are_shown(guarded: Guarded) -> None:
    clock, origin = ManualClock(), {"origin": "http://localhost", "host": "localhost"}
    ui = create_app(UiConfig(urls=[guarded.daemon.url]), clock=clock)
    first, second = (guarded.master.create_token("operator") for _ in range(2))
    browsers = []
    for made in (first, second):
        browsers.append(ui.app.test_client())
        length = {"content-length": str(len(made["token"]) + 6)}
        await browsers[-1].post("/login", form={"token": made["token"]}, headers=origin | length)
    revoked, other = browsers
    pages = [await (await each.get("/jobs?name=a")).get_data(as_text=True) for each in browsers]
    tokens = {page.split('name="form_token" value="')[1].split('"')[0] for page in pages}
    assert tokens == {session.form_token for session in ui.sessions._by_id.values()}, "each has its own"
    guarded.master.revoke_token(first["token_id"])
    clock.advance(5.0 - 2.0)  # a revocation holds everywhere within five seconds; a daemon hears of it within two
    assert (await other.get("/jobs?name=a")).status_code == 200
    answer = await revoked.get("/jobs?name=a")
    assert (answer.status_code, answer.headers["location"][-9:]) == (303, "why=ended")
    part = await revoked.get("/jobs?name=a", headers={"hx-request": "true"})
    assert part.status_code == 204
    assert part.headers["hx-redirect"].startswith("/login?"), "a page that is open goes there as a whole"
    assert (await other.get("/jobs?name=a")).status_code == 200
    ui.sessions.close()


async def test_a_login_empties_no_cache(guarded: Guarded) -> None:
    """Anybody could have every page ask the daemon anew."""
    ui, asked = create_app(UiConfig([guarded.daemon.url])), 0
    browser, headers = ui.app.test_client(), {"origin": "http://localhost", "host": "localhost"}

    async def ask() -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return {}

    for token in ("", "wrong", guarded.master.create_token("viewer")["token"]):
        await ui.answers.get("key", ask, 60)
        length = {"content-length": str(len(token) + 6)}
        await browser.post("/login", form={"token": token}, headers=headers | length)
    await ui.answers.get("key", ask, 60)
    assert asked == 1
    (session,) = ui.sessions.all()
    await browser.post("/logout", form={"form_token": session.form_token}, headers=headers)
    await ui.answers.get("key", ask, 60)
    assert asked == 2, "after an act nothing older is shown"
    ui.sessions.close()


async def test_a_page_that_shows_an_error_is_its_visitors_own_and_lets_him_log_out(guarded: Guarded) -> None:
    ui, browser, made = await _logged_in(guarded)
    (session,) = ui.sessions.all()
    for path, status in (("/job?id=nobody", 404), ("/jobs?odd=1", 422), ("/jobs", 200)):
        answer = await browser.get(path)
        page = await answer.get_data(as_text=True)
        assert answer.status_code == status, path
        assert ui._mark not in page
        assert session.form_token in page
        if status == 404:
            form_token = page.split('name="form_token" value="')[1].split('"')[0]
    answer = await browser.post("/logout", form={"form_token": form_token}, headers=ORIGIN)
    assert answer.status_code == 303
    assert ui.sessions.all() == []
    assert _derived(guarded, made) == []


async def test_a_login_that_fails_half_way_leaves_no_token_and_no_connection(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients: list[AsyncClient] = []

    async def away() -> dict[str, Any]:
        raise Unreachable("gone", sent=False)

    def connect(token: str | None) -> AsyncClient:
        clients.append(AsyncClient(guarded.daemon.url, timeout_s=5, token=token))
        monkeypatch.setattr(clients[-1], "me", away)
        return clients[-1]

    ui, _, made = await _logged_in(guarded, connect, status=503)
    assert ui.sessions.all() == []
    assert _derived(guarded, made) == []
    with pytest.raises(ClientClosed):
        clients[-1].client.me()


def test_a_stop_leaves_no_token_behind(guarded: Guarded) -> None:
    made = guarded.master.create_token("viewer")
    with UiProcess(guarded.ui.log.with_name("stopped.log"), "--url", guarded.daemon.url) as ui:
        for _ in range(3):
            answer = httpx2.post(f"{ui.url}/login", data={"token": made["token"]}, headers={"origin": ui.url})
            assert answer.status_code == 303
        assert len(_derived(guarded, made)) == 3
        assert ui.stop() == 0
        assert "token_left" not in ui.log.read_text()
    assert _derived(guarded, made) == []


async def test_a_stop_waits_three_seconds_for_a_daemon_that_does_not_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Silent:
        client = Client("http://127.0.0.1:9")

        async def in_thread(self, call: object, *, abandon: bool) -> None:
            assert abandon
            await trio.sleep_forever()

    api = Api(cast("AsyncClient", Silent()), Answers(ManualClock()), "me")
    began_s = trio.current_time()
    with capture_logs() as lines:
        await revoke_all([Session(api, Me("viewer", token_id=f"token-{number}")) for number in range(100)])
    assert trio.current_time() - began_s == REVOKE_S
    assert [line["event"] for line in lines] == 100 * ["webui.token_left"]


def _derived(guarded: Guarded, made: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in guarded.master.tokens() if each["derived_from"] == made["token_id"]]


async def _logged_in(
    guarded: Guarded, connect: ClientFactory | None = None, status: int = 303
) -> tuple[Ui, Any, dict[str, Any]]:
    """A UI in this process, a browser, and the token that it logged in with."""
    ui, made = create_app(UiConfig(urls=[guarded.daemon.url]), connect), guarded.master.create_token("operator")
    browser = ui.app.test_client()
    length = {"content-length": str(len(made["token"]) + 6)}
    answer = await browser.post("/login", form={"token": made["token"]}, headers=ORIGIN | length)
    assert answer.status_code == status
    return ui, browser, made


def test_a_person_logs_in_with_a_browser(guarded: Guarded, chromium: Chromium) -> None:
    token = guarded.master.create_token("operator")["token"]

    def look(page: Page) -> str:
        page.goto(f"{guarded.url}/jobs")
        page.get_by_label("Token").fill(token)
        page.keyboard.press("Enter")
        page.wait_for_url("**/jobs")
        return page.locator(".me").inner_text()

    assert "operator" in chromium.run(look)
