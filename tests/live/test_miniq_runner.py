"""What node-miniq's HttpRunner did, one by one: a real daemon, a real store, a line runner over HTTP.

What jqd does in another way, and why: docs/use/DIALECTS.md.
"""

import threading
import time
from collections.abc import Iterator

import pytest

from jqd.client import Client
from jqd.domain.jobid import parse_id
from tests.live.harness import ingested
from tests.live.miniq import WAIT_S, Queue, line_runner, queue


@pytest.fixture(scope="module")
def miniq() -> Iterator[Queue]:
    with queue() as miniq:
        yield miniq


def codes(miniq: Queue, ids: list[str]) -> list[int | None]:
    return [info.exitcode for info in miniq.ended(ids)]


def test_single_one_post_a_job_its_payload_and_a_newline_and_its_exit_code_is_the_status(miniq: Queue) -> None:
    with line_runner(lambda lines: (int(lines[0]), f"said {lines[0]}\n")) as runner:
        miniq.handle("single", runner.url + "/s")
        ids = miniq.add("single", "200", "201", "404", "500")
        ended = miniq.ended(ids)
        assert [(one.exitcode, one.state) for one in ended] == [
            (200, "succeeded"), (201, "succeeded"), (404, "failed"), (500, "failed"),
        ]  # fmt: skip
        assert all(len(lines) == 1 for _, lines in runner.posts)
        assert sorted(runner.lines("/s")) == ["200", "201", "404", "500", "500", "500"], "only the 500 was tried again"


def test_batch_one_post_for_all_payload_lines_and_an_answer_line_for_each(miniq: Queue) -> None:
    with line_runner(lambda lines: (200, "".join(f"{line}\n" for line in lines))) as runner:
        ids = miniq.add_batch("batch", runner.url + "/b", "200 ok", "201", " 404 gone", "422")
        assert codes(miniq, ids) == [200, 201, 404, 422], "the first integer of the line at its place"
        assert runner.posts == [("/b", ["200 ok", "201", " 404 gone", "422"])]


def test_batches_are_as_large_as_its_batch_size_and_of_one_jobtype(miniq: Queue) -> None:
    with line_runner(lambda lines: (200, "200\n" * len(lines))) as runner:
        ids = miniq.add("sized", *(f"a{n}" for n in range(7))) + miniq.add("other", *(f"b{n}" for n in range(7)))
        for name in ("sized", "other"):
            miniq.handle(name, f"{runner.url}/{name}", batch=True, batchSize=3)
        assert set(codes(miniq, ids)) == {200}
        assert max(len(lines) for _, lines in runner.posts) == 3
        assert {line[0] for line in runner.lines("/sized")} == {"a"}
        assert {line[0] for line in runner.lines("/other")} == {"b"}
        # Without a size of its own: ten.
        runner.posts.clear()
        ids = miniq.add_batch("tens", runner.url, *map(str, range(30)))
        assert set(codes(miniq, ids)) == {200}
        assert max(len(lines) for _, lines in runner.posts) == 10


def test_too_few_lines_those_without_one_have_failed_with_no_response(miniq: Queue) -> None:
    with line_runner(lambda lines: (200, "200\n200\n")) as runner:
        ids = miniq.add_batch("few", runner.url, *"123456", max_retry=0)
        ended = miniq.ended(ids)
        assert [one.exitcode for one in ended] == [200, 200, 500, 500, 500, 500]
        assert [(one.message or "").partition(":")[0] for one in ended[2:]] == ["NO_RESPONSE"] * 4


def test_a_line_without_a_number_spoils_it_and_all_that_follow(miniq: Queue) -> None:
    with line_runner(lambda lines: (200, "200\n200\nbad line\n200\n")) as runner:
        ids = miniq.add_batch("bad", runner.url, *"1234", max_retry=0)
        ended = miniq.ended(ids)
        assert [one.exitcode for one in ended] == [200, 200, 500, 500]
        assert [(one.message or "").partition(":")[0] for one in ended[2:]] == ["INVALID_RESPONSE"] * 2


def test_comments_are_no_answers_and_lines_with_j_are_new_jobs(miniq: Queue) -> None:
    said = "# begun\n#J: next|from the first\n200\n\nJ: next|from the second \n200 done\n#J: next|at the end\n"
    with line_runner(lambda lines: (200, said if "one" in lines else "200\n" * len(lines))) as runner:
        miniq.handle("next", runner.url + "/next", batch=True)
        ids = miniq.add_batch("chained", runner.url + "/chained", "one", "two")
        assert codes(miniq, ids) == [200, 200]
        follow = [f"{ids[0]}.0", f"{ids[1]}.0", f"{ids[1]}.1"]
        assert [info.argument for info in miniq.ended(follow)] == ["from the first", "from the second ", "at the end"]
        assert sorted(runner.lines("/next")) == sorted(["from the first", "from the second ", "at the end"])


def test_a_single_job_asks_for_new_jobs_in_its_answer_and_a_failed_one_for_none(miniq: Queue) -> None:
    with line_runner(lambda lines: (int(lines[0]), "sent\nJ: after|it\n")) as runner:
        miniq.handle("asks", runner.url)
        good, bad = miniq.ended(miniq.add("asks", "200", "404"))
        assert (good.exitcode, bad.exitcode) == (200, 404)
        assert "J: after" in (bad.message or ""), "it is in the excerpt of its answer, and nothing more"
        with Client(miniq.daemon.url) as client:
            assert ingested(client, f"{good.job_id}.0").argument == "it"
            assert [job.job_id for job in client.jobs(name="after")] == [f"{good.job_id}.0"]


@pytest.mark.parametrize("status", [100, 199, 302, 500, 599, 7])
def test_all_but_2xx_and_4xx_is_tried_again_until_the_job_has_no_retry_left(miniq: Queue, status: int) -> None:
    with line_runner(lambda lines: (200, f"{status} not yet\n" * len(lines))) as runner:
        name = f"again {status}"
        ids = miniq.add_batch(name, runner.url, "x", "y", max_retry=1, backoff=0.01)
        ended = miniq.ended(ids)
        assert [(one.state, one.attempts) for one in ended] == [("failed", 2)] * 2
        assert {one.message for one in ended} == {"not yet"}
        assert sorted(runner.lines("/")) == ["x", "x", "y", "y"]


def test_a_runner_that_is_not_there_costs_no_attempt_and_why_names_the_errno(miniq: Queue) -> None:
    """node-miniq failed such jobs with 500 and ECONNREFUSED. Here nothing was tried, and they wait."""
    with line_runner() as gone:
        port, url = gone.server_port, gone.url
    miniq.handle("away", url)
    (job_id,) = miniq.add("away", "x")
    text, deadline_s = "", time.monotonic() + WAIT_S
    while "ECONNREFUSED" not in text:  # it is seen with the first attempt to reach it
        assert time.monotonic() < deadline_s, text
        text = miniq.call("GET", f"/v1/jobs/{job_id}/why").json()["text"]
    assert "away@1 cannot be reached" in text or "away@1 gets no jobs" in text
    with line_runner(port=port) as back:
        (info,) = miniq.ended([job_id])
        told = (info.state, info.attempts, back.lines("/"))
        assert told == ("succeeded", 1, ["x"]), "no attempt before counts"


def test_a_connection_that_breaks_under_a_job_is_an_error_with_the_name_of_the_errno(miniq: Queue) -> None:
    with line_runner(lambda lines: None) as runner:
        miniq.handle("broken", runner.url, max_retry=0)
        (info,) = miniq.ended(miniq.add("broken", "x"))
        assert (info.state, info.exitcode) == ("failed", 500)
        assert (info.message or "").startswith("CONNECTION_LOST: ECONNRESET")


def test_a_runner_that_does_not_answer_in_time_is_an_error_that_is_tried_again(miniq: Queue) -> None:
    with line_runner(lambda lines: (asleep.wait(WAIT_S), (200, ""))[1]) as runner:
        asleep = threading.Event()
        miniq.handle("slow", runner.url, timeout=0.2, max_retry=1, backoff=0.01)
        (info,) = miniq.ended(miniq.add("slow", "x"))
        asleep.set()
        assert (info.state, info.attempts, info.exitcode) == ("failed", 2, 504)
        assert (info.message or "").startswith("TIMEOUT")


def test_a_status_for_the_whole_batch_is_each_jobs_own(miniq: Queue) -> None:
    """A batch is halved until the job that fails it is alone: one bad payload takes no other along."""
    with line_runner(lambda lines: (500 if "bad" in lines else 200, "200\n" * len(lines))) as runner:
        ids = miniq.add_batch("halved", runner.url, "a", "b", "bad", "c", max_retry=0)
        assert [(one.exitcode, one.attempts) for one in miniq.ended(ids)] == [(200, 1), (200, 1), (500, 1), (200, 1)]


def test_an_id_has_the_time_at_which_its_job_was_taken_and_ids_are_in_order(miniq: Queue) -> None:
    ids = miniq.add("dated", "a", "b", "c") + miniq.add("dated", "d")
    assert ids == sorted(set(ids))
    for job_id in ids:
        info, parts = miniq.get(job_id), parse_id(job_id)
        assert parts is not None
        assert info.created_at is not None
        # The id is by the machine's clock, and this date by the store's, which is known to some milliseconds.
        assert abs(parts.at_ms - info.created_at.timestamp() * 1000) < 1_000
