"""The client's calls about flows and groups: what they ask, and what they make of the answers."""

from typing import Any

import httpx2
import msgspec
import pytest

from jqd.client import Changed, Client, GroupWaits, JqdClientError, NotFound
from tests.harness.handled import Handled


def job(job_id: str) -> dict[str, Any]:
    return {"job_id": job_id, "name": "add", "state": "blocked", "attempts": 0, "parents": [], "new": "passed over"}


def client_of(*answers: Any) -> tuple[Client, list[tuple[str, str, Any]]]:
    """A client of a daemon that gives these answers, and what it was asked."""
    asked: list[tuple[str, str, Any]] = []
    left = list(answers)

    def answer(request: httpx2.Request) -> httpx2.Response:
        body = msgspec.msgpack.decode(request.content) if request.content else None
        asked.append((request.method, request.url.raw_path.decode(), body))
        headers = {"content-type": "application/msgpack"}
        told = left.pop(0)
        return httpx2.Response(told.get("status", 200), content=msgspec.msgpack.encode(told), headers=headers)

    return Client("http://here", transport=Handled(answer)), asked


def test_a_flow_is_read_page_by_page() -> None:
    client, asked = client_of(
        {"jobs": [job("a"), job("b")], "cursor": "b", "whole": True}, {"jobs": [job("c")], "cursor": "", "whole": False}
    )
    found = client.flow("order/7")
    assert ([each.job_id for each in found.jobs], found.whole) == (["a", "b", "c"], False)
    assert [path for _, path, _ in asked] == ["/v1/jobs/order%2F7/flow", "/v1/jobs/order%2F7/flow?cursor=b"]


def test_what_is_told_otherwise_is_an_error_of_ours() -> None:
    client, _ = client_of({"jobs": [{"job_id": 7}], "cursor": "", "whole": True}, {"group": "g"}, {"then": {}})
    for ask in (client.flow, client.group, client.close_group):
        with pytest.raises(JqdClientError, match="not understood"):
            ask("x")


def test_a_group_is_closed_with_what_waits_for_it() -> None:
    then = {"job_id": "group.a b", "state": None}
    client, asked = client_of({"then": then}, {"then": None})
    found = client.close_group("a b", {"name": "total"}, on_parent_failure="run")
    assert found == GroupWaits(job_id="group.a b", state=None)
    assert client.close_group("a b") is None
    said = {"then": {"name": "total"}, "on_parent_failure": "run"}
    assert asked == [("POST", "/v1/groups/a%20b/close", said), ("POST", "/v1/groups/a%20b/close", {})]


def test_whole_flows_and_groups_are_changed() -> None:
    client, asked = client_of(*[{"matched": 3, "changed": 2, "cursor": ""}] * 4)
    assert [client.cancel_flow("a"), client.retry_flow("a")] == [Changed(3, 2)] * 2
    assert [client.cancel_group("g"), client.retry_group("g")] == [Changed(3, 2)] * 2
    paths = ["/v1/jobs/a/flow/cancel", "/v1/jobs/a/flow/retry", "/v1/groups/g/cancel", "/v1/groups/g/retry"]
    assert asked == [("POST", path, None) for path in paths]
    client, asked = client_of(*[{"matched": 3, "changed": 0, "cursor": ""}] * 2)
    assert [client.cancel_flow("a", dry_run=True), client.retry_group("g", dry_run=True)] == [Changed(3, 0)] * 2
    assert [said for *_, said in asked] == [{"dry_run": True}] * 2


def test_a_flow_of_more_jobs_than_one_call_takes_is_changed_whole() -> None:
    tally, last = {"matched": 3, "changed": 2}, {"cursor": "", "whole": False}
    client, asked = client_of({**tally, "cursor": "!3"}, {**tally, "cursor": "!6"}, {**tally, **last})
    assert client.retry_flow("a", dry_run=True) == Changed(9, 6, whole=False)
    said = [{"dry_run": True} | more for more in ({}, {"cursor": "!3"}, {"cursor": "!6"})]
    assert [body for *_, body in asked] == said


def test_what_was_changed_before_a_call_failed_is_said() -> None:
    client, _ = client_of({"matched": 3, "changed": 2, "cursor": "!3"}, {"status": 404, "detail": "no such job"})
    with pytest.raises(NotFound, match=r"no such job.*3 jobs matched, 2 were changed"):
        client.cancel_flow("a")
    client, _ = client_of({"status": 404, "detail": "no such job"})
    with pytest.raises(NotFound) as told:
        client.cancel_flow("a")
    assert "matched" not in str(told.value)
