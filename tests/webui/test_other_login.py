"""Forms and parts of pages that come at another time than they were made for: another login, a login that is over, a
form that says a thing twice or more than any call carries."""

import httpx2
import pytest
from playwright.sync_api import Page, expect

from jqd.client import Client
from tests.webui.chromium import Chromium
from tests.webui.conftest import Guarded, Push, Site

HTMX = {"hx-request": "true"}


def form_token(page: str) -> str:
    return page.split('name="form_token" value="')[1].split('"')[0]


def test_a_part_of_a_page_of_another_login_has_the_whole_page_loaded(guarded: Guarded) -> None:
    browser = guarded.log_in(guarded.master.create_token("operator")["token"])
    opened_by = {"jqd-form-token": form_token(browser.get("/types").text), **HTMX}
    assert browser.get("/types", headers=opened_by).status_code == 200
    form = {"token": guarded.master.create_token("viewer", tenant="acme")["token"]}
    assert browser.post("/login", data=form).status_code == 303
    part = browser.get("/types", headers=opened_by)
    assert (part.status_code, part.headers["hx-refresh"], part.text) == (204, "true", "")
    stream = browser.get("/live", params={"page": "/types"}, headers=opened_by)
    assert "event: tick" in stream.text, "its part then asks"
    assert "retry" in stream.text
    assert browser.get("/types").status_code == 200


def test_a_tab_shows_whose_rights_it_has_after_another_tab_logged_in(guarded: Guarded, chromium: Chromium) -> None:
    first = guarded.master.create_token("operator")["token"]
    second = guarded.master.create_token("viewer", tenant="acme")["token"]

    def log_in(page: Page, token: str) -> None:
        page.goto(f"{guarded.url}/login?next=/types")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(f"{guarded.url}/types")

    def look(page: Page) -> None:
        log_in(page, first)
        expect(page.locator(".me")).to_contain_text("operator")
        other = page.context.new_page()
        log_in(other, second)
        page.bring_to_front()
        expect(page.locator(".me")).to_contain_text("viewer of acme", timeout=30_000)
        expect(page).to_have_url(f"{guarded.url}/types")

    chromium.run(look, strict=False)


def test_who_is_revoked_while_he_sends_a_form_is_led_to_a_page_after_his_login(guarded: Guarded) -> None:
    made = guarded.master.create_token("operator")
    browser = guarded.log_in(made["token"])
    form = {"form_token": form_token(browser.get("/types").text), "name": "nobody"}
    guarded.master.revoke_token(made["token_id"])
    answer = browser.post("/type/pause", data=form)
    assert answer.headers["location"] == "/login?next=%2F&why=ended"


def test_a_form_that_says_a_thing_twice_is_refused_and_does_nothing(site: Site, push: Push) -> None:
    one, other = (push("echo", 1, delay="1d") for _ in range(2))
    said = {"form_token": [site.form_token()], "id": [one, other]}
    answer = httpx2.post(f"{site.url}/job/cancel", data=said, headers={"origin": site.url}, timeout=20)
    assert answer.status_code == 422
    assert "&#39;id&#39; stands in the form more than once" in answer.text
    with Client(site.daemon) as client:
        assert {client.get(each).state for each in (one, other)} == {"scheduled"}


def test_a_double_click_sends_a_form_once(site: Site, chromium: Chromium) -> None:
    with Client(site.daemon) as client:
        client.set_schedule("twice", {"name": "echo"}, every=7_200)
        posted: list[str] = []

        def look(page: Page) -> None:
            page.on("request", lambda asked: posted.append(asked.url) if asked.method == "POST" else None)
            page.goto(f"{site.url}/schedule?name=twice")
            page.get_by_role("button", name="Run now").dblclick()
            expect(page.locator(".done")).to_be_visible()

        chromium.run(look)
        assert posted == [f"{site.url}/schedule/run"]
        client.delete_schedule("twice")


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/constraint/set", {"match": "true", "concurrency": "1"}),
        ("/schedule/set", {"jobtype": "echo", "argument": "1", "every": "2h"}),
        ("/constraint/delete", {}),
        ("/type/pause", {}),
        ("/job/cancel", {}),
    ],
)
@pytest.mark.parametrize("chars", [20_000, 3_000_000])
def test_a_name_that_no_call_carries_is_refused(site: Site, path: str, form: dict[str, str], chars: int) -> None:
    name = "a" * chars
    answer = site.post(path, {**form, "name": name, "id": name, "form_token": site.form_token()})
    assert answer.status_code in (413, 414, 422), (answer.status_code, answer.text[:2_000])
    assert len(answer.text) < 5 * chars


LONG = "9" * 400


@pytest.mark.parametrize("number", [LONG, "-1", "1e9", "nan", "²"])
def test_a_number_that_is_none_is_refused(site: Site, number: str) -> None:
    token = {"form_token": site.form_token()}
    priority = site.post("/job/priority", {**token, "id": site.jobs["scheduled"], "priority": number})
    assert priority.status_code == (303 if number == "-1" else 422)
    run = {**token, "act": "cancel", "state": "scheduled", "name": "nobody", "before": "2100-01-01T00:00:00Z"}
    for act in ("count", "piece", "stop"):
        for field in ("matched", "changed", "met", "looked"):
            assert site.post(f"/bulk/{act}", {**run, field: number}).status_code == 400, (act, field)
    if number != "-1":
        assert site.post("/bulk/count", {**run, "exitcode": number}).status_code == 400
    for page in ("jobs", "errors"):
        assert site.get(f"/{page}?looked={number}&state=failed").status_code == 400, page
