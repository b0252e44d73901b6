"""What miniq's seed has: lines as pushes, exit codes, and jobs that time out by age, as the daemon is told."""

from collections.abc import Iterator

import httpx2
import pytest

from jqd.client import Client
from tests.live.harness import LEASE, Daemon, pair
from tests.live.test_hooks import Hook, hook, registered, run, say

assert hook is not None  # the fixture
WAIT_S = 30.0
TEXT = {"content-type": "text/plain"}


@pytest.fixture(scope="module")
def aging() -> Iterator[Daemon]:
    """One of two, whose jobs do not wait for ever."""
    told = {"JQD_JOB__EXPIRES_IN_S": "1s", "JQD_JOB__RETRY_FOR_S": "2s", "JQD_RETRY__FIRST_S": "100ms"}
    with pair({**LEASE, **told}) as (_, one, two, _):
        yield one
        assert (one.stop(), two.stop()) == (0, 0)


def test_lines_come_to_a_line_runner_as_they_were_sent(shared_daemon: Daemon, hook: Hook) -> None:
    with registered(shared_daemon, hook.url + "/lines", "lined", style="lines", batch=10):
        lines = '200 ann@example.org\n# nobody\n200 {"a":  1}\n404 gone\n'
        told = httpx2.post(shared_daemon.url + "/-/job/lined/add", content=lines, headers=TEXT)
        assert (told.status_code, told.json()["count"]) == (200, 3)
        with Client(shared_daemon.url) as client:
            ended = client.wait(told.json()["ids"], WAIT_S)
        assert [(info.state, info.exitcode) for info in ended] == [
            ("succeeded", 200), ("succeeded", 200), ("failed", 404),
        ]  # fmt: skip
        assert [info.argument for info in ended] == ["200 ann@example.org", '200 {"a":  1}', "404 gone"]
    foreign = {**TEXT, "origin": "http://evil.example"}
    assert httpx2.post(shared_daemon.url + "/add?jobtype=lined", content="x\n", headers=foreign).status_code == 403


def test_the_status_of_a_worker_stays_what_it_was(shared_daemon: Daemon, hook: Hook) -> None:
    with Client(shared_daemon.url) as client, registered(shared_daemon, hook.url, "exits", style="webhook"):
        for status, body in ((200, "x"), (201, "x"), (204, ""), (422, "no")):
            info = run(client, "exits", say((status, {}, body)), keep_result=True)
            assert (info.exitcode, info.state) == (status, "succeeded" if status < 400 else "failed")
            (row,) = shared_daemon.get("/v1/jobs?name=exits&limit=1").json()["jobs"]
            assert row["exitcode"] == status


def test_jobs_that_say_nothing_end_by_age_where_the_daemon_is_told_so(aging: Daemon, hook: Hook) -> None:
    with Client(aging.url) as client:
        unserved = client.get(client.push("nobody serves it"), WAIT_S)
        assert (unserved.state, unserved.attempts) == ("failed", 0)
        assert "expire" in (unserved.message or "")
        dated = client.push("nobody serves it", expires_in="1h")
        with registered(aging, hook.url, "fails", style="webhook"):
            info = run(client, "fails", say((500, {}, "again")))
            assert info.state == "failed"
            assert info.attempts > 1
            assert info.max_retry > info.attempts, "it said no number: its age counts, not how often it was tried"
            few = run(client, "fails", say((500, {}, "again")), max_retry=1)
            assert (few.state, few.attempts) == ("failed", 2)
        assert client.get(dated).state == "waiting", "what a pusher says wins"
