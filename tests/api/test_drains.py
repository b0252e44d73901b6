"""Daemons that are drained: by name or as the one that is asked, shown in the list, resumed, of no tenant's concern."""

from typing import Any

import pytest

from jqd.domain.lease import Peer
from jqd.domain.pauses import DRAIN
from jqd.domain.settings import NIL
from jqd.service import pauses, settings
from tests.api.edge import JSON, Edge


@pytest.fixture
def edge() -> Edge:
    edge = Edge()
    edge.control.peers = [Peer("d1", 7, True, True, True, 0.1), Peer("d2", 9, False, True, True, 0.2)]
    edge.control.held = {"d1": 3, "d2": None}
    return edge


async def ask(edge: Edge, method: str, path: str, status: int = 200, **headers: str) -> Any:
    told = await edge.call(method, path, accept=JSON, headers=headers)
    assert told.status == status, told.body
    return told.body


async def test_it_is_said_shown_and_taken_back(edge: Edge) -> None:
    since = "2027-01-15T08:00:00.000Z"
    told = await ask(edge, "POST", "/v1/daemons/this/drain")
    assert told == {"daemon": "d1", "drained_at": since, "in_flight": 3, "note": None}
    edge.clock.advance(5)
    assert (await ask(edge, "POST", "/v1/daemons/d1/drain"))["drained_at"] == since, "it is so already"
    assert (await ask(edge, "POST", "/v1/daemons/d2/drain"))["in_flight"] is None
    rows = (await ask(edge, "GET", "/v1/daemons"))["daemons"]
    assert [row["drained_at"] for row in rows] == [since, "2027-01-15T08:00:05.000Z"]
    for note in (None, "'d1' was not drained"):
        told = await ask(edge, "POST", "/v1/daemons/this/resume")
        assert (told["daemon"], told["drained_at"], told["note"]) == ("d1", None, note)
    edge.control.peers.pop()
    assert (await ask(edge, "POST", "/v1/daemons/d2/resume"))["note"] is None, "also one that is away"


async def test_who_drains_is_told_since_when_also_if_it_is_resumed_in_the_same_moment(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = settings.save

    async def say(services: Any, make: Any) -> None:
        await real(services, make)
        await real(services, lambda: {(DRAIN, "d1"): NIL})

    monkeypatch.setattr(pauses, "save", say)
    told = await ask(edge, "POST", "/v1/daemons/this/drain")
    assert told["drained_at"] == "2027-01-15T08:00:00.000Z"


async def test_a_daemon_that_is_not_there(edge: Edge) -> None:
    told = await ask(edge, "POST", "/v1/daemons/d3/drain", 404)
    assert told["detail"] == "there is no daemon 'd3' here; `jqd daemons` lists those of this store"
    edge.control.peers.clear()
    assert "begins no job" in (await ask(edge, "POST", "/v1/daemons/this/drain", 503))["detail"]
    await ask(edge, "POST", "/v1/daemons/d3/resume", 404)


async def test_a_tenant_has_no_say_in_it(edge: Edge) -> None:
    """Daemons serve all of them."""
    await ask(edge, "POST", "/v1/daemons/this/drain", 403, **{"jqd-tenant": "acme"})
    await ask(edge, "POST", "/v1/daemons/this/drain")
    await ask(edge, "POST", "/v1/daemons/d1/resume", 403, **{"jqd-tenant": "acme"})
