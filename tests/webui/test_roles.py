"""What each role is shown: every page by a real token of each, of a tenant and of none, by the daemon's own table."""

import re
from collections.abc import Iterator
from html import unescape
from typing import NamedTuple

import httpx2
import pytest
from quart import Response
from werkzeug.exceptions import default_exceptions

from jqd.api.route import Route
from jqd.client import Client
from jqd.domain.tokens import MAY, Role
from jqd.routes import ROUTES
from jqd.webui.app import create_app
from jqd.webui.config import BODY_BYTES_MAX, LOGIN_BYTES_MAX, UiConfig
from jqd.webui.rights import ACTS, LOOK, may
from jqd.webui.visit import Visit
from tests.live.harness import ingested
from tests.webui.conftest import NOBODY, Guarded, Site

TENANTS = ("", "roles")
NAME = "roles"  # of all that is looked at
BEFORE = "before=2100-01-01T00:00:00Z"
PAGES = {
    "/": "",
    "/jobs": "GET /v1/jobs",
    f"/job?id={NAME}": "GET /v1/jobs/<job_id>",
    f"/job/confirm?act=cancel&id={NAME}": "GET /v1/jobs/<job_id>",
    f"/flow?id={NAME}": "GET /v1/jobs/<job_id>/flow",
    f"/flow/confirm?act=cancel&id={NAME}": "POST /v1/jobs/<job_id>/flow/cancel",
    f"/group?name={NAME}": "GET /v1/groups/<group>",
    f"/group/confirm?act=close&name={NAME}": "GET /v1/groups/<group>",
    f"/group/confirm?act=cancel&name={NAME}": "POST /v1/groups/<group>/cancel",
    f"/bulk?act=cancel&name={NAME}&{BEFORE}": "POST /v1/jobs/cancel",
    "/errors": "GET /v1/errors",
    "/types": "GET /v1/types",
    f"/type?name={NAME}": "GET /v1/history",
    "/schedules": "GET /v1/schedules",
    f"/schedule?name={NAME}": "GET /v1/schedules/<name>",
    f"/schedule/confirm?name={NAME}": "GET /v1/schedules/<name>",
    "/constraints": "GET /v1/constraints",
    f"/constraint?name={NAME}": "GET /v1/constraints/<name>",
    f"/constraint/confirm?name={NAME}": "GET /v1/constraints/<name>",
    "/workers": "GET /v1/handlers",
    "/worker/confirm?id=nobody": "GET /v1/handlers",
    f"/handler?name={NAME}": "GET /v1/handlers/<name>",
    f"/handler/confirm?name={NAME}": "GET /v1/handlers/<name>",
    "/tenants": "GET /v1/tenants",
    "/daemons": "GET /v1/stats",
    "/audit": "GET /v1/audit",
    "/tokens": "POST /v1/tokens",
    "/token": "POST /v1/tokens",
    "/token/confirm?id={token}": "POST /v1/tokens",
}
"""Address → the call that a role must be let make to see it; none: everybody sees it."""
CALLS = {
    "token": "POST /v1/tokens",
    "cancel": "DELETE /v1/jobs/<job_id>",
    "delete": "POST /v1/jobs/delete",
    "close": "POST /v1/groups/<group>/close",
    "unregister": "DELETE /v1/workers/<worker_id>",
    "drain": "POST /v1/daemons/<daemon>/drain",
    "retry": "POST /v1/jobs/<job_id>/retry",
    "run-now": "POST /v1/jobs/<job_id>/run-now",
    "change": "PATCH /v1/jobs/<job_id>",
    "pause": "POST /v1/types/<name>/pause",
    "resume": "POST /v1/types/<name>/resume",
    "set": "PUT /v1/schedules/<name>",
    "remove": "DELETE /v1/schedules/<name>",
    "flow": "POST /v1/jobs/<job_id>/flow/cancel",
    "retry-many": "POST /v1/jobs/retry",
    "delete-many": "POST /v1/jobs/delete",
    "cancel-many": "POST /v1/jobs/cancel",
}
"""Act, as pages call it → what it asks of the API."""
ROUTE: dict[str, Route] = {f"{route.method} {route.path}": route for route in ROUTES}
LIES = ("does not answer", "The API refused this", "made a mistake", "No daemon answers")


class Login(NamedTuple):
    role: Role
    tenant: str
    browser: httpx2.Client
    token_id: str

    def is_let(self, call: str) -> bool:
        return lets(self.role, self.tenant, call)


def lets(role: Role, tenant: str, call: str) -> bool:
    """Whether the daemon's table lets a token make a call."""
    route = ROUTE.get(call)
    return route is None or (bool(MAY[role] & {*route.needs}) and not (route.all_tenants and tenant))


@pytest.fixture(scope="module")
def things(guarded: Guarded) -> None:
    """One of each that a page shows, of each tenant."""
    for tenant in TENANTS:
        with Client(guarded.daemon.url, token="m" * 32, tenant=tenant) as client:
            client.push(NAME, 1, job_id=NAME, delay="1d", group=NAME)
            ingested(client, NAME)
            client.set_schedule(NAME, {"name": NAME}, every=7_200)
            client.set_constraint(NAME, f"job.name == '{NAME}'", concurrency=1)
            client.set_handler(NAME, "http://127.0.0.1:9/", {})


@pytest.fixture(scope="module", params=[(role, tenant) for role in Role for tenant in TENANTS], ids=str)
def login(request: pytest.FixtureRequest, guarded: Guarded, things: None) -> Iterator[Login]:
    role, tenant = request.param
    made = guarded.master.create_token(role.value, tenant=tenant)
    yield Login(role, tenant, guarded.log_in(made["token"]), made["token_id"])
    guarded.master.revoke_token(made["token_id"])


def text_of(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page.partition('tabindex="-1">')[2])).split())


def test_every_page_has_a_row_here() -> None:
    rights = {path: page.needs for path, page in create_app(UiConfig(urls=[NOBODY])).declared.items()}
    assert {path.partition("?")[0] for path in PAGES} == rights.keys() - {"/login", "/live"}


def test_every_page_shows_what_the_role_may_see_or_says_what_it_needs(login: Login) -> None:
    for path, call in PAGES.items():
        answer = login.browser.get(path.format(token=login.token_id))
        said = text_of(answer.text)
        if path.startswith("/handler") and login.role is Role.WORKER:
            assert "is not in code, and who only works sees no other" in said
            continue
        assert answer.status_code == (200 if login.is_let(call) else 403), (path, said)
        assert not [lie for lie in LIES if lie in said], (path, said)
        assert f"<span>{login.role}" in answer.text, path
        if answer.status_code == 403:
            assert said.startswith("Refused"), path
            assert login.role in said or "of all tenants" in said, (path, said)
            assert "jqd tokens create" in said or "tokens of no tenant" in said or "role master" in said, (path, said)


def test_a_right_of_one_role_is_told_of_one(guarded: Guarded) -> None:
    said = text_of(guarded.log_in(guarded.master.create_token("viewer")["token"]).get("/tokens").text)
    assert "this page is for the role master; you are logged in as viewer" in said
    assert LOOK.whom == "the roles viewer, operator, master"


def test_the_head_names_the_pages_that_the_role_may_see(login: Login) -> None:
    named = re.findall(r'href="(/[a-z]*)"', login.browser.get("/").text.partition("</nav>")[0].partition("<nav")[2])
    navigation = [path for _, path in create_app(UiConfig(urls=[NOBODY])).navigation]
    assert named == [path for path in navigation if login.is_let(PAGES[path])]


def test_now_tells_no_numbers_that_the_role_may_not_see_and_those_of_its_tenant(login: Login) -> None:
    page = login.browser.get("/").text
    if not login.is_let("GET /v1/types"):
        assert "tiles" not in page
        assert "you may look at a job by its id" in page
        assert login.browser.get("/job", params={"id": NAME}).status_code == 200
    elif login.tenant:
        assert '<b>1</b> <span class="badge scheduled">' in page
    else:
        assert "tiles" in page


def test_who_may_list_no_workers_is_told_so_and_not_that_there_are_none(login: Login) -> None:
    said = text_of(login.browser.get("/workers").text)
    may_see_handlers_alone = login.is_let("GET /v1/handlers") and not login.is_let("GET /v1/workers")
    assert ("Which workers there are is for the roles" in said) is may_see_handlers_alone, said
    assert "No worker is registered" not in said, "there are versions of a handler"


@pytest.mark.parametrize("act", ACTS)
def test_a_button_is_grey_where_the_api_refuses_its_act(act: str) -> None:
    for role in Role:
        for tenant in TENANTS:
            assert may(role, tenant, ACTS[act]) is lets(role, tenant, CALLS[act]), (role, tenant)


def test_a_role_of_a_newer_daemon_is_told_by_it_what_it_may() -> None:
    assert may("janitor", "", ACTS["retry"])
    assert not may("janitor", "acme", ACTS["drain"])


def test_who_pushes_jobs_deletes_none_and_has_no_button_for_it(guarded: Guarded, things: None) -> None:
    guarded.master.push(NAME, 1, job_id="ended", delay="1d")
    ingested(guarded.master, "ended")
    guarded.master.cancel("ended")
    guarded.master.get("ended", wait=20)
    browser = guarded.log_in(guarded.master.create_token("push")["token"])
    page = browser.get("/job?id=ended").text
    assert re.search(r"<button class=\"danger\" disabled[^>]*>Delete", page)
    form_token = page.split('name="form_token" value="')[1].split('"')[0]
    answer = browser.post("/job/delete", data={"id": "ended", "form_token": form_token})
    assert (answer.status_code, "role master" in answer.text) == (403, True)


def test_a_page_of_another_tenant_speaks_of_the_page(guarded: Guarded, things: None) -> None:
    browser = guarded.log_in(guarded.master.create_token("viewer", tenant="roles")["token"])
    for tenant in ("other", ""):
        said = text_of(browser.get("/jobs", params={"tenant": tenant}).text)
        assert "logged in for the tenant roles" in said
        assert "header" not in said
        assert "JQD" not in said
    said = text_of(guarded.log_in(guarded.master.create_token("operator")["token"]).get("/daemons?tenant=roles").text)
    assert "this page is of all tenants together, and not of roles alone" in said


STRANGE = [
    ("GET", "/nothing", 404),
    ("GET", "/static/0/nothing.js", 404),
    ("POST", "/jobs", 405),
    ("DELETE", "/job/cancel", 405),
    ("PUT", "/nothing", 404),
]


@pytest.mark.parametrize(("method", "path", "status"), STRANGE)
def test_what_comes_to_no_page_is_answered_by_one_in_our_words(site: Site, method: str, path: str, status: int) -> None:
    answer = httpx2.request(method, site.url + path, headers={"origin": site.url}, timeout=20)
    assert answer.status_code == status
    assert 'aria-label="Pages"' in answer.text
    in_our_words(answer.text)


def test_a_form_that_is_too_long_is_refused_in_our_words(guarded: Guarded, site: Site) -> None:
    answer = httpx2.post(
        f"{guarded.url}/login", data={"token": "x" * LOGIN_BYTES_MAX}, headers={"origin": guarded.url}, timeout=20
    )
    assert answer.status_code == 413
    in_our_words(answer.text)
    long = {"id": "x", "argument": "x" * (BODY_BYTES_MAX + 1), "form_token": site.form_token()}
    answer = site.post("/job/mend", long)
    assert answer.status_code == 413
    in_our_words(answer.text)


async def test_a_mistake_of_the_ui_and_an_odd_request_are_said_in_our_words() -> None:
    ui = create_app(UiConfig(urls=[NOBODY]))

    @ui.page("/mistake", needs_login=False)
    async def mistake(visit: Visit) -> Response:
        raise ZeroDivisionError("secret")

    @ui.page("/teapot", needs_login=False)
    async def teapot(visit: Visit) -> Response:
        raise default_exceptions[418]

    for path, status in (("/mistake", 500), ("/teapot", 418)):
        answer = await ui.app.test_client().get(path, headers={"host": "localhost"})
        page = await answer.get_data(as_text=True)
        assert answer.status_code == status
        assert "secret" not in page
        in_our_words(page)


def in_our_words(page: str) -> None:
    assert '<a class="brand"' in page
    assert 'role="alert"' in page
    said = text_of(page)
    for each in default_exceptions.values():
        assert not each.description or each.description not in said, said
        assert not each().name or not said.startswith(each().name + " "), said


def test_what_is_no_form_is_refused_in_our_words(site: Site) -> None:
    body, headers = {"form_token": site.form_token(), "id": "x"}, {"origin": site.url}
    answer = httpx2.post(f"{site.url}/job/cancel", json=body, headers=headers, timeout=20)
    assert answer.status_code == 415
    assert "application/json" in answer.text
    in_our_words(answer.text)
