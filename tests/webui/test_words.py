"""What pages say to somebody who is new here: of a queue with nothing in it, and of its first jobs."""

import html
import re
from collections.abc import Iterator

import pytest

from jqd.client import Client
from jqd.webui.values import word
from tests.directories import short_directory
from tests.live.harness import Daemon, ingested, wait_for
from tests.webui.conftest import Push, Site, UiProcess


@pytest.fixture(scope="module")
def empty() -> Iterator[Site]:
    with short_directory() as base, Daemon(base / "d") as daemon, UiProcess(base / "ui.log", "--url", daemon.url) as ui:
        yield Site(ui.url, daemon.url)
        assert ui.stop() == 0
        daemon.stop()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/jobs", "There is no job: jqd push echo 1 pushes one."),
        ("/jobs?tag=x", "No job is of that kind."),
        ("/errors", "No job has failed for good."),
        ("/errors?state=retrying", "No job that failed will be tried again."),
        ("/errors?name=x", "No job failed so."),
        ("/types", "There is no jobtype: each begins with its first job."),
        ("/types?name=x", "No jobtype is called so."),
        ("/tenants", "jqd tenants"),
        ("/daemons", "settings"),
        ("/daemons", "seconds that its event loop is late"),
    ],
)
def test_a_list_without_rows_says_what_there_is_none_of(empty: Site, path: str, said: str) -> None:
    assert said in words(empty.get(path).text)


def test_one_dead_job_is_no_jobs(empty: Site) -> None:
    with Client(empty.daemon) as client:
        first = client.push("a", 1, delay="1d")
        ingested(client, first)
        dead = client.push("a", 1, after=[first])
        client.cancel(first)
        client.wait([dead], timeout=60)
    # The numbers of a store are shared for a moment, by the daemon and by the UI.
    wait_for(lambda: "1 job has failed for good." in words(empty.get("/").text), "it is told as one")


def test_a_job_that_runs_does_not_wait(site: Site, push: Push) -> None:
    job_id = push("sleep", 600)
    with Client(site.daemon) as client:
        client.get(job_id, wait=0)
        page = words(site.get(f"/job?id={job_id}").text)
        while "running sleep" not in page:  # it is taken by a process of its own
            page = words(site.get(f"/job?id={job_id}").text)
        client.cancel(job_id)
    assert "Now: it runs since" in page
    assert "Why it waits" not in page


def test_why_a_job_waits_is_said_once_and_a_pause_without_an_end_has_none(site: Site, push: Push) -> None:
    with Client(site.daemon) as client:
        client.pause_type("said once", reason="no paper")
        page = words(site.get(f"/job?id={push('said once')}").text)
        client.resume_type("said once")
    assert page.count("no paper") == 1
    held = words(site.get("/job?id=held").text)
    assert "a pause without an end" in held
    assert "9999" not in held


def test_options_are_said_as_people_say_them() -> None:
    assert [word(each) for each in (True, False, 30.0, 0.5, 7, "x", [1, True])] == [
        "yes", "no", "30", "0.5", "7", "x", "1, yes",
    ]  # fmt: skip


def words(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", page.partition("<main")[2])).split())
