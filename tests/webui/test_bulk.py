"""From a reason for failures to an act on exactly its jobs; acts on all that match, counted and done in pieces."""

import re
from collections.abc import Callable
from html import unescape
from typing import Any, cast

import pytest
from playwright.sync_api import Page, expect

from jqd.client import AsyncClient, Client, Conflict, Unavailable
from jqd.webui.app import create_app
from jqd.webui.config import UiConfig
from jqd.webui.pages.bulk import offered
from jqd.webui.values import link
from tests.live.harness import ingested, wait_for
from tests.webui.chromium import Chromium
from tests.webui.conftest import NASTY, Push, Site

PIECE = 2_000  # jobs that one call of the API changes where it searches texts
MANY = "bulk<b>/\"'&"


def form(text: str, path: str) -> dict[str, str]:
    """The fields of the form on a page that is sent there."""
    (body,) = re.findall(rf'<form method="post" action="{re.escape(path)}".*?</form>', text, re.DOTALL)
    return fields_of(body)


def fields_of(body: str) -> dict[str, str]:
    return {unescape(name): unescape(given) for name, given in re.findall(r'name="([^"]*)" value="([^"]*)"', body)}


def numbers(text: str) -> str:
    return unescape(text).replace("\u202f", "")


@pytest.mark.parametrize(
    ("which", "acts"),
    [
        ({}, []),
        ({"before": "2030-01-01T00:00:00Z"}, []),
        ({"tag": "a"}, ["retry failed", "delete failed", "cancel None"]),
        ({"state": "failed"}, ["retry failed", "delete failed"]),
        ({"state": "succeeded"}, ["delete succeeded"]),
        ({"state": "running"}, ["cancel running"]),
    ],
)
def test_what_is_offered_for_a_filter_is_what_the_api_can_do(which: dict[str, str], acts: list[str]) -> None:
    assert [f"{each.act} {each.fields.get('state')}" for each in offered(which)] == acts


def test_a_reason_leads_to_exactly_its_jobs_and_what_fails_later_is_none_of_them(
    site: Site, chromium: Chromium, push: Push
) -> None:
    ours = [push("fail", f"{NASTY} ours", ended=True, max_retry=0, tags=["bulk"]) for _ in range(2)]
    other = push("fail", f"{NASTY} other", ended=True, max_retry=0, tags=["bulk"])

    def look(page: Page) -> None:
        page.goto(f"{site.url}/errors?tag=bulk&error=ours")
        page.get_by_role("button", name="Delete").click()
        page.wait_for_url("**/bulk?**before=**")
        expect(page.locator("#bulk")).to_contain_text("2 jobs match")
        ours.append(push("fail", f"{NASTY} ours", ended=True, max_retry=0, tags=["bulk"]))
        page.get_by_role("button", name="Delete these 2").click()
        expect(page.get_by_role("status").last).to_contain_text("2 of 2 jobs deleted")
        assert page.locator("main script, main i, [onclick], [style]").count() == 0

    chromium.run(look)
    with Client(site.daemon) as client:
        assert {job.job_id for job in client.jobs(tag="bulk", state="failed")} == {ours[2], other}


def test_jobs_that_were_cancelled_after_the_count_are_not_deleted(site: Site) -> None:
    """43 of 3 counted jobs were."""
    with Client(site.daemon) as client:
        ids = client.push_many([{"name": "later", "argument": n, "delay": "1d"} for n in range(43)])
        ingested(client, ids[-1])

        def cancelled() -> int:
            return len([*client.jobs(name="later", state="cancelled")])

        client.cancel_many(job_ids=ids[:3])
        wait_for(lambda: cancelled() == 3, "they were not cancelled")
        counting = site.get("/bulk?act=delete&state=cancelled&name=later")
        page = site.get(counting.headers["location"])
        assert "Delete these 3" in page.text
        client.cancel_many(job_ids=ids[3:])
        wait_for(lambda: cancelled() == 43, "they were not cancelled")
        done = site.post("/bulk/piece", form(page.text, "/bulk/piece"))
        assert "3</strong> of 3 jobs deleted" in done.text
        assert cancelled() == 40


def test_texts_that_differ_in_an_id_are_one_reason_and_are_tried_again_together(site: Site, push: Push) -> None:
    for n in (1, 2):
        push("fail", f"user {n}", ended=True, max_retry=0, tags=["again"])
    text = site.get("/errors?tag=again").text
    assert "The texts behind it" in text
    assert "2 in the last hour" in text
    page = site.get(
        link("/bulk", **fields_of(text.split('action="/bulk"')[1].split("</form>")[0]), before="2100-01-01T00:00:00Z")
    )
    assert "2 jobs match" in page.text
    assert "jqd --tenant= retry --all --state=failed --name=fail --tag=again '--error-like=" in unescape(page.text)
    done = site.post("/bulk/piece", form(page.text, "/bulk/piece"))
    assert "2</strong> of 2 jobs tried again" in done.text


def test_many_are_counted_and_cancelled_piece_by_piece_with_a_stop(site: Site, chromium: Chromium) -> None:
    """By forms alone the first piece, and a stop; the rest by itself, in a browser that runs scripts."""
    with Client(site.daemon) as client:
        ids = client.push_many([{"name": MANY, "argument": n} for n in range(2 * PIECE + 100)])
        for job_id in (ids[0], ids[-1]):
            ingested(client, job_id)
    ask = link("/bulk", act="cancel", name=MANY, state="waiting", search=MANY, before="2100-01-01T00:00:00Z")
    page, parts = site.get(ask), 0
    while 'action="/bulk/count"' in page.text:
        said = re.search(r"At least \d+ jobs match<.*Looked at \d+ of \d+ jobs", numbers(page.text), re.DOTALL)
        assert said, page.text
        page, parts = site.post("/bulk/count", form(page.text, "/bulk/count")), parts + 1
    assert parts >= 1
    assert f"Cancel these {len(ids)}" in numbers(page.text)
    page = site.post("/bulk/piece", form(page.text, "/bulk/piece"))
    assert f"{PIECE}</strong> of {len(ids)} jobs cancelled." in numbers(page.text)
    page = site.post("/bulk/stop", form(page.text, "/bulk/stop"))
    assert "the others are as they were" in page.text
    assert "Go on" in page.text

    def look(page: Page) -> None:
        page.goto(site.url + ask)
        expect(page.get_by_role("button", name="Cancel these 2\u202f100")).to_be_visible()
        page.get_by_role("button", name="Cancel these").click()
        expect(page.get_by_role("status").last).to_contain_text("2\u202f100 of 2\u202f100 jobs cancelled")

    chromium.run(look)


def test_a_list_that_found_nothing_yet_looks_on_by_itself(site: Site, chromium: Chromium) -> None:
    """By a link without scripts, in a browser until there is one."""
    with Client(site.daemon) as client:
        needle = client.push("hay", ["needle in it"], priority=-5)
        ids = client.push_many([{"name": "hay", "argument": n} for n in range(2 * PIECE)])
        for job_id in (needle, ids[-1]):
            ingested(client, job_id)
    ask, links = link("/jobs", name="hay", state="waiting", search="needle in"), list[str]()
    page = site.get(ask)
    while "The look goes on" in page.text:
        assert re.search(r"Looked at \d+ of \d+ jobs", numbers(page.text))
        (found,) = re.findall(r'<a href="([^"]*)" data-hx-get', page.text)
        links.append(unescape(found))
        page = site.get(links[-1])
    assert len(links) >= 1
    assert needle in page.text

    def look(page: Page) -> None:
        page.goto(site.url + ask)
        expect(page.get_by_role("link", name=needle)).to_be_visible()

    chromium.run(look)


class Refusing:
    """A client of the API that refuses the second piece, once."""

    def __init__(self) -> None:
        self.client = self
        self.asked: list[dict[str, Any]] = []

    async def in_thread(self, call: Callable[[], dict[str, Any]], *, abandon: bool = False) -> dict[str, Any]:
        del abandon
        return {"role": "operator"}

    async def ask(self, path: str, *, method: str, body: dict[str, Any], wait_s: float) -> dict[str, Any]:
        del method, wait_s
        self.asked.append(body)
        if len(self.asked) == 2:
            raise Unavailable("7 jobs were changed before this: the store is away", status=503, retry_after=None)
        return {"matched": 10, "changed": 10, "cursor": "on" if len(self.asked) == 1 else ""}

    def close(self) -> None:
        """Nothing is open."""


async def test_a_piece_that_is_refused_stops_and_is_asked_for_again_from_where_it_was() -> None:
    api = Refusing()
    ui = create_app(UiConfig(["http://127.0.0.1:1"]), lambda _: cast("AsyncClient", api))
    browser, headers = ui.app.test_client(), {"origin": "http://localhost", "host": "localhost"}
    session = await ui._open_session()
    assert session is not None
    fields = {"act": "retry", "state": "failed", "exitcode": "401", "before": "2030-01-01T00:00:00Z"}
    sent = {**fields, "form_token": session.form_token, "matched": "20", "whole": "yes"}
    text = ""
    for part in ("10</strong> of 20", "the store is away", "20</strong> of 20"):
        answer = await browser.post("/bulk/piece", form=sent, headers=headers)
        text = str(await answer.get_data(as_text=True))
        assert answer.status_code == 200, "a script shows no other answer"
        assert part in text
        assert ('data-hx-trigger="load' in text) is (part.startswith("10"))
        sent = form(text, "/bulk/piece") if "Go on" in text else {}
    assert [each["cursor"] for each in api.asked] == ["", "on", "on"]
    assert api.asked[0]["exitcode"] == 401


class Grown:
    """A client of the API that tells its date, and finds more jobs than it counted."""

    def __init__(self) -> None:
        self.client = self
        self.asked: list[dict[str, Any]] = []

    async def in_thread(self, call: Callable[[], dict[str, Any]], *, abandon: bool = False) -> dict[str, Any]:
        del abandon
        return {"role": "operator"}

    async def ask(self, path: str, *, method: str, body: dict[str, Any], wait_s: float) -> dict[str, Any]:
        del path, method, wait_s
        self.asked.append(body)
        if body.get("dry_run"):
            return {"matched": 3, "changed": 0, "cursor": "", "at": "2001-02-03T04:05:06.007Z"}
        raise Conflict("43 jobs match, and at most 3 were to be changed", status=409)

    def close(self) -> None:
        """Nothing is open."""


async def test_jobs_that_were_not_counted_stop_the_change_and_the_date_is_the_daemons() -> None:
    api = Grown()
    ui = create_app(UiConfig(["http://127.0.0.1:1"]), lambda _: cast("AsyncClient", api))
    browser, headers = ui.app.test_client(), {"origin": "http://localhost", "host": "localhost"}
    answer = await browser.get("/bulk?act=delete&state=cancelled", headers=headers)
    assert (answer.status_code, api.asked[0].get("before")) == (303, None)
    assert "before=2001-02-03T04%3A05%3A06.007Z" in answer.headers["location"]
    answer = await browser.get(answer.headers["location"], headers=headers)
    sent = form(str(await answer.get_data(as_text=True)), "/bulk/piece")
    answer = await browser.post("/bulk/piece", form=sent, headers=headers)
    text = str(await answer.get_data(as_text=True))
    assert api.asked[-1]["matched_max"] == 3
    assert "Stopped: 43 jobs match, and at most 3 were to be changed" in text
    assert "Go on" not in text, "it would be refused again"
    assert 'href="/bulk?act=delete&amp;state=cancelled">Count anew' in text


@pytest.mark.parametrize(
    "change", [{"matched": "many"}, {"exitcode": "x"}, {"act": "explode"}, {"before": ""}], ids=lambda each: min(each)
)
def test_a_form_that_makes_no_sense_changes_nothing(site: Site, change: dict[str, str]) -> None:
    page = site.get("/bulk?act=retry&state=failed&name=nobody&before=2030-01-01T00:00:00Z")
    assert "No job matches" in page.text
    sent = {"act": "retry", "state": "failed", "before": "2030-01-01T00:00:00Z", "form_token": site.form_token()}
    assert site.post("/bulk/piece", sent | change).status_code == 400
