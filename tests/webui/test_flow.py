"""A flow and a group as a whole: shown by steps and as a picture, cancelled and tried again together."""

import re
from html import unescape
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from jqd.client import Client, FlowJob
from jqd.client.flows import depths_of
from jqd.webui.pages.flow import PAGE, _done
from jqd.webui.picture import JOBS_MAX, draw, points
from tests.webui.chromium import Chromium
from tests.webui.conftest import NASTY, Push, Site
from tests.webui.test_bulk import form

GROUP = "all of <i>them<i>\"'"


def job(job_id: str, parents: str = "", state: str = "waiting") -> FlowJob:
    return FlowJob(
        job_id=job_id, name=f"name of {job_id} which is long", state=state, attempts=0, parents=list(parents)
    )


def test_a_picture_has_a_place_for_each_job_and_a_line_for_each_link() -> None:
    jobs = [job("a"), job("b", "a"), job("c", "a"), job("d", "bcx")]
    picture = draw(jobs, depths_of(jobs))
    assert picture is not None
    at = {node.job.job_id: (node.x, node.y) for node in picture.nodes}
    assert at["a"][0] < at["b"][0] == at["c"][0] < at["d"][0] < picture.width
    assert len(set(at.values())) == 4
    assert len(picture.edges) == 4
    assert picture.nodes[0].label == "name of a which is …"


def test_too_many_jobs_or_links_make_no_picture() -> None:
    many = [job(f"j{n}") for n in range(JOBS_MAX + 1)]
    assert draw(many, depths_of(many)) is None
    assert draw([], {}) is None
    parents = [job(f"p{n}") for n in range(50)]
    children = [
        FlowJob(job_id=f"c{n}", name="c", state="blocked", attempts=0, parents=[each.job_id for each in parents])
        for n in range(50)
    ]
    jobs = parents + children
    assert draw(jobs, depths_of(jobs)) is None


def test_a_line_of_nothing_lies_on_the_ground() -> None:
    assert points([0, 0], 10, 20, 0) == "0.0,19.0 10.0,19.0"
    assert points([0, 4], 10, 20, 4) == "0.0,19.0 10.0,1.0"
    assert points([], 10, 20, 0) == ""


def test_a_flow_is_cancelled_as_a_whole_from_the_page_of_one_of_its_jobs(
    site: Site, chromium: Chromium, push: Push
) -> None:
    first = push("echo", 1, delay="1d", job_id="first/<b>\"'")
    last = push(NASTY, after=[first], tags=[NASTY])

    def look(page: Page) -> int:
        page.goto(f"{site.url}/job?id={last}")
        page.get_by_role("link", name="Its flow").click()
        page.wait_for_url("**/flow?**")
        expect(page.locator("svg.flow a")).to_have_count(2)
        found = page.locator("main script, main i, main b, [onclick], [style]").count()
        page.get_by_role("button", name="Cancel").click()
        page.wait_for_url("**/flow/confirm**")
        expect(page.locator("main")).to_contain_text("2 jobs now")
        page.get_by_role("button", name="Cancel these 2").click()
        page.wait_for_url("**done=cancel**")
        return found

    assert chromium.run(look) == 0
    with Client(site.daemon) as client:
        assert client.get(last, wait=30).state == "cancelled"
        assert client.get(first, wait=30).state == "cancelled"


def test_a_flow_that_failed_is_tried_again(site: Site, push: Push) -> None:
    failed = push("fail", "a flow", ended=True, max_retry=0)
    push("echo", 1, after=[failed], ended=True)
    page = site.get(f"/flow/confirm?id={failed}&act=retry")
    assert "2 jobs" in page.text
    assert f"jqd retry --flow {failed}" in page.text
    done = site.post("/flow/retry", form(page.text, "/flow/retry"))
    assert done.status_code == 303
    assert "2 jobs are tried again." in site.get(done.headers["location"]).text
    page = site.get(f"{done.headers['location']}&more=1")
    assert "are tried again" not in page.text, "which was not done now"
    partly = cast("Any", SimpleNamespace(done="retry", query={"changed": "2", "more": "1"}))
    assert _done(partly).startswith("2 jobs are tried again. Not all were found")


def test_a_large_flow_is_shown_page_by_page(site: Site) -> None:
    with Client(site.daemon) as client:
        jobs = [{"name": "nobody", "group": "a large flow", "delay": "1d"}] * (2 * PAGE + 50)
        ids = client.push_many(jobs)
        path: str | None = f"/flow?id={ids[0]}"
        seen, pages = list[str](), 0
        while path is not None:
            page = site.get(path)
            assert page.status_code == 200
            seen += re.findall(r'<a class="id" href="[^"]+">(\w+)</a>', page.text)
            pages += 1
            further = re.search(r'href="([^"]+)" rel="next">Further', page.text)
            path = None if further is None else unescape(further[1])
            assert ("svg" in page.text, "on this page" in page.text) == (True, True)
        assert (pages, sorted(seen)) == (3, sorted(ids))
        assert "Nearest" in page.text
        client.cancel_group("a large flow")


def test_a_group_is_shown_closed_and_cancelled(site: Site, push: Push) -> None:
    member = push("echo", 1, delay="1d", group=GROUP)
    failed = push("fail", NASTY, group=GROUP, max_retry=0, ended=True)
    at = f"name={quote(GROUP, safe='')}"
    page = site.get(f"/group?{at}")
    assert "50.0 % of 2 jobs" in page.text
    assert failed in page.text
    assert "<script>alert" not in page.text
    assert "<i>" not in page.text
    for each in (member, failed):
        assert f'href="/flow?id={each}"' in page.text, "the way to what waits for them"
    flow = site.get(f"/flow?id={member}").text
    assert f'Group <a href="/group?{at}">' in flow
    assert GROUP in unescape(flow)
    assert ">Group</th>" not in flow, "one for all is said once"
    asked = site.get(f"/group/confirm?{at}&act=close").text
    for _ in range(2):  # the second counts as the first
        assert site.post("/group/close", form(asked, "/group/close")).headers["location"].endswith("done=close")
    assert "Close …" not in site.get(f"/group?{at}").text
    for act in ("retry", "cancel"):
        asked = site.get(f"/group/confirm?{at}&act={act}").text
        assert "1 job" in asked or "2 jobs" in asked
        assert site.post(f"/group/{act}", form(asked, f"/group/{act}")).status_code == 303
    with Client(site.daemon) as client:
        assert client.get(member, wait=30).state == "cancelled"


@pytest.mark.parametrize(
    "path",
    ["/flow", "/group", "/flow/confirm?id=x&act=close", "/group/confirm?name=x&act=no", "/flow?id=held&state=foo"],
)
def test_an_address_without_sense_is_refused(site: Site, path: str) -> None:
    assert site.get(path).status_code == 400


def test_a_flow_goes_by_the_name_of_its_job(site: Site, push: Push) -> None:
    job_id = push("echo", 1, delay="1d", job_id="named by its pusher")
    (onward,) = re.findall(r'href="(/flow[^"]*)">Its flow', site.get(f"/job?id={quote(job_id)}").text)
    page = site.get(unescape(onward)).text
    assert f"<h1>Flow of {job_id}</h1>" in page
    assert f"jqd flow &#39;{job_id}&#39;" in page
    assert 'stroke-width="3"' in page, "it stands out in the picture"
