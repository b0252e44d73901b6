"""GET /v1/history: numbers over time, of what the principal may see."""

from typing import Any

import pytest

from jqd.domain.tally import EVERYBODY, OTHER, RUN_S, WAIT_S, Counts
from jqd.history.counts import encode
from jqd.store import HistoryRow
from tests.api.edge import JSON
from tests.api.tokened import ROOT, call, make
from tests.api.tokened import edge as edge  # a fixture
from tests.api.whole import Whole

MINUTE_MS = 60_000


def counts(pushed: int, failed: int = 0) -> Counts:
    one = Counts()
    one.pushed = pushed
    one.ended[1] = failed
    one.waited(700)
    return one


async def put(edge: Whole, daemon: str, ago: int, *, minutes: int = 1, **named: Counts) -> None:
    began_ms = (edge.clock.wall_ms() // MINUTE_MS - ago) // minutes * minutes * MINUTE_MS
    row = {name.replace("__", "\x1f"): one for name, one in named.items()}
    assert await edge.whole.put_history(daemon, [HistoryRow(minutes, began_ms, encode(row))])


async def ask(edge: Whole, query: str = "", token: str = ROOT, **headers: str) -> dict[str, Any]:
    told = await call(edge, token, "GET", f"/v1/history{query}", **headers)
    assert told.status == 200, told.body
    body: dict[str, Any] = told.body
    return body


def pushed(body: dict[str, Any]) -> list[int]:
    return [step["pushed"] for step in body["steps"]]


async def test_daemons_are_added_up_by_minute_and_missing_minutes_are_nothing(edge: Whole) -> None:
    assert (await ask(edge))["since"] is None, "a new store knows nothing, and says so"
    await put(edge, "one", 3, mail=counts(1, failed=1), bill=counts(10))
    await put(edge, "two", 3, mail=counts(2))
    await put(edge, "two", 1, mail=counts(4))
    await put(edge, "two", 5, mail=counts(100))
    body = await ask(edge, "?minutes=4&types=1")
    assert (body["step_minutes"], pushed(body)) == (1, [0, 13, 0, 4])
    assert (body["wait_bounds"], body["run_bounds"], body["unread"]) == ([*WAIT_S], [*RUN_S], 0)
    step = body["steps"][1]
    assert (step["failed"], sum(step["wait"]), step["wait_s"]) == (1, 3, 2.1)
    assert body["since"] < step["at"] < body["steps"][2]["at"]
    by_name = {row["name"]: row for row in body["types"]}
    assert (by_name["mail"]["pushed"], by_name["mail"]["ended"]) == ([0, 3, 0, 4], [0, 1, 0, 0])
    assert by_name["bill"]["pushed"] == [0, 10, 0, 0]
    assert pushed(await ask(edge, "?minutes=4&name=bill")) == [0, 10, 0, 0]
    assert (await ask(edge, "?minutes=4"))["types"] == []


async def test_beyond_eight_hours_steps_are_ten_minutes_with_the_one_under_way(edge: Whole) -> None:
    await put(edge, "one", 0, minutes=10, mail=counts(5))
    await put(edge, "one", 480, minutes=10, mail=counts(7))
    await put(edge, "one", 1, mail=counts(1_000))
    body = await ask(edge, "?minutes=481")
    assert (body["step_minutes"], len(body["steps"])) == (10, 49)
    assert (pushed(body)[0], pushed(body)[-1], sum(pushed(body))) == (7, 5, 12)
    assert len((await ask(edge, "?minutes=480"))["steps"]) == 480
    assert len((await ask(edge, "?minutes=11520"))["steps"]) == 1_152


async def test_a_tenant_sees_its_own_numbers_and_no_others(edge: Whole) -> None:
    others = {EVERYBODY: counts(1_000), OTHER: counts(100), f"acme\x1f{OTHER}": counts(10)}
    began_ms = (edge.clock.wall_ms() // MINUTE_MS - 1) * MINUTE_MS
    await edge.whole.put_history("one", [HistoryRow(1, began_ms, encode({"acme\x1fmail": counts(1), **others}))])
    token = (await make(edge, "viewer", tenant="acme"))["token"]
    body = await ask(edge, "?types=1", token)
    assert pushed(body)[-1] == 11
    assert [(row["name"], row["tenant"]) for row in body["types"]] == [("", "acme"), ("mail", "acme")]
    assert pushed(await ask(edge, "?name=mail", token))[-1] == 1
    assert pushed(await ask(edge, "?name=mail"))[-1] == 0, "of the tenant that asks"
    assert pushed(await ask(edge, "?name=mail", ROOT, **{"jqd-tenant": "acme"}))[-1] == 1
    assert pushed(await ask(edge))[-1] == 1_111
    assert (await call(edge, (await make(edge, "push"))["token"], "GET", "/v1/history")).status == 403
    other = (await make(edge, "viewer", tenant="other"))["token"]
    assert sum(pushed(await ask(edge, "", other))) == 0


async def test_what_this_release_cannot_read_is_left_out_and_counted(edge: Whole) -> None:
    began_ms = (edge.clock.wall_ms() // MINUTE_MS - 1) * MINUTE_MS
    await edge.whole.put_history("later", [HistoryRow(1, began_ms, b"\x92\x02\x90")])
    await put(edge, "one", 1, mail=counts(5))
    body = await ask(edge)
    assert (body["unread"], pushed(body)[-1]) == (1, 5)


async def test_pages_of_the_store_are_read_to_their_end_and_a_store_that_is_away_is_told(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jqd.store.history.PAGE_ROWS", 2)
    for ago in range(1, 8):
        await put(edge, "one", ago, mail=counts(1))
    assert sum(pushed(await ask(edge, "?minutes=60"))) == 7
    edge.whole.away = "cable pulled"
    assert (
        await edge.call("GET", "/v1/history", accept=JSON, headers={"authorization": f"Bearer {ROOT}"})
    ).status == 503


@pytest.mark.parametrize("query", ["?minutes=0", "?minutes=11521", "?minutes=x", "?types=maybe", "?tenant=acme"])
async def test_a_wrong_query_is_refused(edge: Whole, query: str) -> None:
    assert (await call(edge, ROOT, "GET", f"/v1/history{query}")).status == 422
