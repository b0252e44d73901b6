"""Every page in a real Chromium: light, dark, phone, with and without JavaScript; nothing foreign, nothing to say."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from jqd.client import Client
from tests.webui.chromium import DARK_PHONE, OTHERWISE, Chromium, faults_everywhere
from tests.webui.conftest import Push, Site
from tests.webui.pages import PAGES, REFUSED, Seen

WITH_JOBS = (
    "now",
    "jobs",
    "job",
    "errors",
    "bulk",
    "flow",
    "group",
    "types",
    "type",
    "schedule",
    "constraint",
    "workers",
    "handler",
)
"""Pages that show what pushers and workers made."""


def names(seen: Seen) -> str:
    return seen.name


OFTEN = ("now", "jobs", "job succeeded", "errors", "bulk", "no such job")
"""Pages that a browser draws with each change. The other tests read all pages without one."""


def in_a_browser(pages: Iterable[Seen]) -> list[Any]:
    """One page of each template, in light on a desk and in dark on a phone; then all pages in every other way."""
    first = [
        pytest.param(seen, [DARK_PHONE], id=seen.name, marks=[pytest.mark.long] * (seen.name not in OFTEN))
        for seen in pages
        if not seen.again
    ]
    return first + [pytest.param(seen, OTHERWISE, id=f"{seen.name}+", marks=pytest.mark.long) for seen in pages]


@pytest.mark.parametrize(("seen", "otherwise"), in_a_browser(PAGES))
def test_a_page_is_sound(site: Site, chromium: Chromium, seen: Seen, otherwise: Sequence[Any]) -> None:
    def look(page: Page) -> list[str]:
        answer = page.goto(site.url + seen.path(site))
        assert answer is not None
        assert answer.status == 200
        assert seen.holds in page.content()
        return faults_everywhere(page, otherwise)

    assert chromium.look_at(look) == []


@pytest.mark.parametrize(("seen", "otherwise"), in_a_browser(REFUSED))
def test_a_page_that_refuses_is_sound_too(site: Site, chromium: Chromium, seen: Seen, otherwise: Sequence[Any]) -> None:
    def look(page: Page) -> list[str]:
        answer = page.goto(site.url + seen.path(site))
        assert answer is not None
        assert 400 <= answer.status < 500
        assert seen.holds in page.content()
        return faults_everywhere(page, otherwise)

    assert chromium.look_at(look, strict=False) == []  # the browser itself notes the status in its console


@pytest.mark.parametrize("seen", PAGES, ids=names)
def test_a_page_says_the_same_without_javascript(site: Site, seen: Seen) -> None:
    answer = site.get(seen.path(site))
    assert answer.status_code == 200
    assert seen.holds in answer.text
    assert "<script>alert" not in answer.text
    assert "49" not in answer.text.partition("{{7*7}}")[2][:20]


def test_now_moves_by_itself(site: Site, chromium: Chromium, push: Push) -> None:
    def look(page: Page) -> None:
        page.goto(site.url)
        tile = page.locator(".tiles a", has_text="scheduled").locator("b")
        before = int(tile.inner_text())
        push("echo", None, delay="1d")
        expect(tile).to_have_text(str(before + 1), timeout=60_000)

    chromium.run(look)


def test_a_job_is_cancelled_by_keyboard_alone_and_asked_before(site: Site, chromium: Chromium, push: Push) -> None:
    job_id = push("echo", 1, delay="1d")

    def look(page: Page) -> str:
        page.goto(f"{site.url}/job?id={job_id}")
        page.get_by_role("button", name="Cancel").focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/job/confirm**")
        page.get_by_role("button", name="Cancel").focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**done=cancel**")
        return page.get_by_role("status").first.inner_text()

    assert "cancelled" in chromium.run(look)


def test_a_failed_job_is_mended_and_retried_in_one_step_without_javascript(
    site: Site, chromium: Chromium, push: Push
) -> None:
    job_id = push("sleep", "not a number", ended=True, max_retry=0)

    def look(page: Page) -> None:
        page.goto(f"{site.url}/job?id={job_id}")
        page.get_by_text("Mend the argument and retry").click()
        field = page.get_by_label("Argument, as JSON")
        field.fill("[1,")
        page.get_by_role("button", name="Retry with this argument").click()
        expect(page.get_by_role("alert")).to_contain_text("JSON")
        expect(field).to_have_value("[1,")  # what was typed is not lost
        field.fill("0")
        page.get_by_role("button", name="Retry with this argument").click()
        page.wait_for_url("**done=mend**")

    chromium.run(look, java_script_enabled=False, strict=False)
    with Client(site.daemon) as client:
        assert client.get(job_id, wait=30).state == "succeeded"


@pytest.mark.long  # test_attack.py reads all pages with each change
def test_what_a_pusher_wrote_is_text_everywhere(site: Site, chromium: Chromium) -> None:
    """`watched` would see a script of theirs, or a request; here that nothing of it became a part of the page."""

    def look(page: Page) -> list[int]:
        found = []
        for path in (seen.path(site) for seen in PAGES if seen.name.partition(" ")[0] in WITH_JOBS):
            page.goto(site.url + path)
            found.append(page.locator("main script, main i, main iframe, [onclick], [style]:not(.uplot *)").count())
        return found

    assert set(chromium.run(look)) == {0}


def test_the_address_of_a_job_may_hold_anything(site: Site, chromium: Chromium) -> None:
    def look(page: Page) -> str:
        page.goto(f"{site.url}/jobs?state=scheduled")
        page.get_by_role("link", name=site.jobs["odd"]).click()
        page.wait_for_url("**/job?**")
        return page.locator("h1").inner_text()

    assert chromium.run(look) == f"Job {site.jobs['odd']}"
