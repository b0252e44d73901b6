"""Ids, groups and names are each tenant's own: who sees all tenants acts on the one of the row, and on no other."""

import re
from collections.abc import Iterator
from html import unescape

import httpx2
import pytest

from jqd.client import Client
from jqd.webui.values import link
from tests.live.harness import ingested
from tests.webui.conftest import Guarded
from tests.webui.test_bulk import fields_of, form

WHO = ("", "acme", "beta")


@pytest.fixture(scope="module")
def clients(guarded: Guarded) -> Iterator[dict[str, Client]]:
    """Of each tenant, with jobs of the same ids, names and groups, some of them failed."""
    found = {who: Client(guarded.daemon.url, token="m" * 32, tenant=who) for who in WHO}
    for client in found.values():
        for job_id in ("same", "other", "grouped"):
            client.push("alike", 1, job_id=job_id, delay="1d", group="club" if job_id == "grouped" else None)
        client.push("follows", 1, job_id="child", after=["other"])
        client.push("gone", 1, job_id="gone", delay="1d")
        ingested(client, "gone")
        client.cancel("gone")
        client.push("dead", 1, job_id="dead", after=["gone"])
        for job_id in ("same", "other", "grouped", "child"):
            ingested(client, job_id)
    yield found
    for client in found.values():
        client.close()


@pytest.fixture
def browser(guarded: Guarded) -> httpx2.Client:
    return guarded.log_in(guarded.master.create_token("operator")["token"])


def links(page: str, path: str) -> list[str]:
    return [unescape(each) for each in re.findall(rf'href="({re.escape(path)}\?[^"]*)"', page)]


def states(clients: dict[str, Client], job_id: str) -> list[str]:
    return [clients[who].get(job_id).state for who in WHO]


def asked(browser: httpx2.Client, page: str, act: str) -> httpx2.Response:
    """Follow the form that leads to a question, and say yes."""
    (body,) = [each for each in re.findall(r"<form method=.get.*?</form>", page, re.DOTALL) if f'value="{act}"' in each]
    at = body.split('action="')[1].split('"')[0]
    question = browser.get(at, params=fields_of(body))
    assert "acme" in question.text
    sent = re.findall(r'<form method="post" action="(/[^"]*)"', question.text)[-1]
    return browser.post(sent, data=form(question.text, sent))


def of_acme(browser: httpx2.Client, job_id: str) -> str:
    page = browser.get("/jobs?name=alike&tenant=acme").text
    (at,) = [each for each in links(page, "/job") if f">{job_id}</a>" in page.split(each.replace("&", "&amp;"))[1][:60]]
    return at


def test_a_row_of_another_tenant_leads_to_its_job_and_an_act_there_is_on_no_other(
    browser: httpx2.Client, clients: dict[str, Client]
) -> None:
    page = browser.get("/jobs?name=alike").text
    shown = [browser.get(at).text for at in links(page, "/job")]
    for who in WHO[1:]:
        assert any(f"<dt>Tenant</dt><dd>{who}</dd>" in each for each in shown), f"no row leads to a job of {who}"
    (acme,) = [each for each in shown if "Job same" in each and "<dt>Tenant</dt><dd>acme</dd>" in each]
    answer = asked(browser, acme, "cancel")
    assert answer.status_code == 303
    assert "<dt>Tenant</dt><dd>acme</dd>" in browser.get(answer.headers["location"]).text
    assert states(clients, "same") == ["scheduled", "cancelled", "scheduled"]
    retried = browser.post("/job/retry", data=form(browser.get(answer.headers["location"]).text, "/job/retry"))
    assert retried.status_code == 303
    assert states(clients, "same") == ["scheduled", "waiting", "scheduled"]


def test_flow_and_group_of_another_tenant_are_changed_as_that_tenants(
    browser: httpx2.Client, clients: dict[str, Client]
) -> None:
    job = browser.get(of_acme(browser, "other")).text
    flow = browser.get(links(job, "/flow")[0].partition("&tenant")[0]).text  # by its id alone, too
    for at in links(flow, "/job"):
        assert "<dt>Tenant</dt><dd>acme</dd>" in browser.get(at).text
    assert asked(browser, flow, "cancel").status_code == 303
    assert states(clients, "other") == ["scheduled", "cancelled", "scheduled"]
    assert states(clients, "child")[::2] == ["blocked", "blocked"]
    group = browser.get(links(browser.get(of_acme(browser, "grouped")).text, "/group")[0]).text
    assert "Of the tenant" in group
    assert asked(browser, group, "cancel").status_code == 303
    assert states(clients, "grouped") == ["scheduled", "cancelled", "scheduled"]


def test_a_link_of_a_mail_shows_one_tenant_and_the_question_names_all_of_the_filter(
    browser: httpx2.Client, clients: dict[str, Client]
) -> None:
    asks = link("/bulk", act="cancel", state="scheduled", name="alike", tenant="beta")
    at = browser.get(asks).headers["location"]
    assert "tenant=beta" in at
    question = browser.get(at).text
    assert "<dt>Tenant</dt><dd>beta</dd>" in question
    assert "--tenant=beta" in question
    nobodys, acmes, _ = states(clients, "same")
    done = browser.post("/bulk/piece", data=form(question, "/bulk/piece"))
    assert "3</strong> of 3 jobs cancelled" in done.text
    assert states(clients, "same") == [nobodys, acmes, "cancelled"]
    everything = browser.get(asks.replace("tenant=beta", "before=2100-01-01T00:00:00Z")).text
    assert "<dt>Tenant</dt><dd>all tenants</dd>" in everything
    nobody = browser.get(asks.replace("tenant=beta", "tenant=&before=2100-01-01T00:00:00Z")).text
    assert "only jobs of no tenant" in nobody
    assert "3 jobs match" in nobody


def test_errors_lead_to_the_jobs_of_their_tenant(browser: httpx2.Client, clients: dict[str, Client]) -> None:
    for client in clients.values():
        client.wait(["dead"], timeout=60)
    page = browser.get("/errors?name=dead").text
    offers = [fields_of(each) for each in re.findall(r'<form method="get" action="/bulk".*?</form>', page, re.DOTALL)]
    assert sorted({each["tenant"] for each in offers}) == sorted(WHO)
    one = browser.get("/errors?name=dead&tenant=acme").text
    assert {fields["tenant"] for fields in map(fields_of, re.findall(r'action="/bulk".*?</form>', one, re.DOTALL))} == {
        "acme"
    }


def test_a_row_of_a_list_of_settings_leads_to_the_one_of_its_tenant(
    browser: httpx2.Client, clients: dict[str, Client]
) -> None:
    for client in clients.values():
        client.set_schedule("nightly", {"name": "alike"}, every=7_200)
        client.set_constraint("few", "job.name == 'nobody'", concurrency=1)
        client.set_handler("answers", "http://127.0.0.1:9/", {})
    for at, path, name in (
        ("/schedules", "/schedule", "nightly"),
        ("/constraints", "/constraint", "few"),
        ("/workers", "/handler", "answers"),
    ):
        found = [each for each in links(browser.get(at).text, path) if f"name={name}" in each]
        assert sorted(each.partition("tenant=")[2] for each in found) == sorted(WHO)
        assert all(browser.get(each).status_code == 200 for each in found)
    page = browser.get("/schedule?name=nightly&tenant=acme").text
    assert browser.post("/schedule/pause", data=form(page, "/schedule/pause")).status_code == 303
    assert [bool(clients[who].schedule("nightly")["paused_at"]) for who in WHO] == [False, True, False]


@pytest.mark.parametrize("tenant", ["acme", "beta"])
def test_who_may_not_speak_for_a_tenant_is_refused(guarded: Guarded, clients: dict[str, Client], tenant: str) -> None:
    token = guarded.master.create_token("operator", tenant="acme")["token"]
    browser = guarded.log_in(token)
    status = 200 if tenant == "acme" else 403
    for path in ("/jobs?", "/errors?name=dead&", "/bulk?act=delete&state=failed&before=2100-01-01T00:00:00Z&"):
        assert browser.get(f"{path}tenant={tenant}").status_code == status


@pytest.mark.parametrize(
    "at",
    [
        "/bulk?act=delete&state=failed&nmae=dead",
        "/jobs?nmae=dead",
        "/errors?tennant=acme",
        "/jobs?tenant=NOT+one",
        "/jobs?name=a&name=b",
        "/types?cursr=1",
        "/audit?tokn=1",
        "/tenants?x=",
        "/job?id=same&tenat=acme",
    ],
)
def test_an_address_with_a_part_that_nobody_knows_is_refused(browser: httpx2.Client, at: str) -> None:
    answer = browser.get(at)
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text


def test_a_form_with_a_field_that_nobody_knows_changes_nothing(browser: httpx2.Client) -> None:
    page = browser.get("/bulk?act=retry&state=failed&name=nobody&before=2030-01-01T00:00:00Z").text
    token = page.split('name="form_token" value="')[1].split('"')[0]
    sent = {"act": "delete", "state": "failed", "before": "2030-01-01T00:00:00Z", "form_token": token, "nmae": "dead"}
    assert browser.post("/bulk/piece", data=sent).status_code == 422


def test_the_pages_that_the_head_names_speak_for_the_same_tenant(browser: httpx2.Client) -> None:
    page = browser.get("/jobs?tenant=acme").text
    head = page.partition("</header>")[0]
    assert '<a href="/errors?tenant=acme">' in head
    assert '<a href="/daemons">' in head, "which is of no tenant alone"
    assert '<a href="/">All tenants</a>' in page
    assert "JQD-Tenant: acme" in page


def test_a_row_of_a_tenant_leads_to_its_jobs_and_pauses_that_tenant(
    clients: dict[str, Client], browser: httpx2.Client, guarded: Guarded
) -> None:
    page = browser.get("/tenants").text
    for who in WHO:
        assert f'<a href="/jobs?tenant={who}">' in page
    rows = {row.split("?tenant=")[1].split('"')[0]: row for row in page.split("<tr>") if "?tenant=" in row}
    for act, is_paused in (("pause", True), ("resume", False)):
        onward = browser.post(f"/tenants/{act}", data=form(rows["acme"], f"/tenants/{act}")).headers["location"]
        assert onward == f"/tenants?done={act}&tenant=acme"
        paused = {row["tenant"]: bool(row.get("paused_at")) for row in guarded.master.tenants()}
        assert (paused["acme"], paused["beta"], paused[""]) == (is_paused, False, False)
        page = browser.get("/tenants").text
        rows = {row.split("?tenant=")[1].split('"')[0]: row for row in page.split("<tr>") if "?tenant=" in row}
