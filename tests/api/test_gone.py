"""What went away within the last day: on the first page of the lists, and for those alone who may see it."""

from typing import Any

import pytest

from jqd.runner.departures import ROWS_MAX, Departure, Gone
from tests.api.whole import Whole


def gone(kind: Any, name: str, *, died: bool = True) -> Gone:
    return Gone(Departure(kind, name, died, 1_800_000_060_000, 1_800_000_000_000, 3, "mailer"), ["d2"])


@pytest.fixture
async def edge() -> Whole:
    edge = await Whole().begin()
    edge.control.left = [gone("daemon", "d1"), gone("worker", "w1"), gone("worker", "acme\x1fw2", died=False)]
    return edge


async def test_a_daemon_that_is_gone_stands_beside_those_that_are_there(edge: Whole) -> None:
    told = (await edge.call("GET", "/v1/daemons")).body
    assert told["gone"] == [
        {
            "daemon": "d1",
            "how": "died",
            "at": "2027-01-15T08:01:00.000Z",
            "last_seen_at": "2027-01-15T08:00:00.000Z",
            "jobs": 3,
            "by": ["d2"],
            "times": 1,
        }
    ]


async def test_a_worker_that_is_gone_is_seen_by_its_tenant_and_not_once_it_is_back(edge: Whole) -> None:
    everything = (await edge.call("GET", "/v1/workers")).body["gone"]
    assert [(row["worker_id"], row.get("tenant"), row["how"]) for row in everything] == [
        ("w1", None, "died"), ("w2", "acme", "left")
    ]  # fmt: skip
    acme = (await edge.call("GET", "/v1/workers", headers={"jqd-tenant": "acme"})).body["gone"]
    assert [row["worker_id"] for row in acme] == ["w2"]
    card = {"name": "mailer", "worker_id": "w1", "jobs": ["mail"], "max_jobs": 1}
    assert (await edge.call("POST", "/v1/workers", card)).status == 201
    page = (await edge.call("GET", "/v1/workers?limit=1")).body
    assert [row["worker_id"] for row in page["gone"]] == ["w2"]
    card["worker_id"] = "w3"
    assert (await edge.call("POST", "/v1/workers", card)).status == 201
    cursor = (await edge.call("GET", "/v1/workers?limit=1")).body["cursor"]
    later = (await edge.call("GET", f"/v1/workers?limit=1&cursor={cursor}")).body
    assert [row["worker_id"] for row in later["workers"]] == ["w3"]
    assert "gone" not in later


async def test_a_tenant_sees_its_own_whatever_others_lost(edge: Whole) -> None:
    edge.control.left += [gone("worker", f"beta\x1f{number}") for number in range(ROWS_MAX)]
    edge.control.left += [gone("daemon", f"x{number}") for number in range(ROWS_MAX)]
    acme = (await edge.call("GET", "/v1/workers", headers={"jqd-tenant": "acme"})).body["gone"]
    assert [row["worker_id"] for row in acme] == ["w2"]
    for what in ("workers", "daemons"):
        assert len((await edge.call("GET", f"/v1/{what}")).body["gone"]) == ROWS_MAX
