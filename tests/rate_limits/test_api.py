"""Constraints: said, shown, refused where they mean nothing, tried, deleted."""

from typing import Any
from unittest.mock import ANY

import msgspec
import pytest

from jqd.domain.settings import CONSTRAINT
from jqd.domain.shares import Share
from jqd.rate_limits import service as constraints
from jqd.rate_limits.cel import Matcher, Tree
from jqd.rate_limits.matcher import EXPRESSIONS_CACHED, compiled
from tests.api.edge import JSON
from tests.api.whole import Whole

PATH = "/v1/constraints/slow"


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


async def ask(edge: Whole, method: str, path: str, status: int = 200, body: Any = None) -> Any:
    told = await edge.call(method, path, body, accept=JSON)
    assert told.status == status, told.body
    return told.body


async def test_it_is_said_shown_and_deleted(edge: Whole) -> None:
    wish = {"match": 'job.name == "mail"', "rate": {"limit": 5, "burst": 2}, "key": "job.argument.customer"}
    told = await ask(edge, "PUT", PATH, 201, wish)
    assert (told["rate"], told["key"]) == ({"limit": 5, "per_s": 1.0, "burst": 2}, "job.argument.customer")
    told = await ask(edge, "PUT", PATH, 200, {"match": "true", "concurrency": 3, "pause": "2033-05-18T03:33:20Z"})
    assert (told["rate"], told["concurrency"], told["paused_until"]) == (None, 3, "2033-05-18T03:33:20.000Z")
    assert told["pause"] == told["paused_until"], "each field that is put is shown"
    told = await ask(edge, "PUT", PATH, 200, {"match": "true", "pause": True})
    assert (told["paused"], told["paused_until"], told["pause"]) == (True, None, True)
    shown = await ask(edge, "GET", PATH, 200)
    again = {name: shown[name] for name in ("match", "rate", "concurrency", "pause", "cost")}
    assert await ask(edge, "PUT", PATH, 200, again) == {**shown, "revision": ANY, "changed_at": ANY}
    assert await ask(edge, "GET", "/v1/constraints") == {"constraints": [await ask(edge, "GET", PATH)], "cursor": ""}
    await ask(edge, "DELETE", PATH, 204)
    await ask(edge, "DELETE", PATH, 404)
    await ask(edge, "GET", PATH, 404)
    assert [setting.is_deleted for setting in edge.workers.settings.all(CONSTRAINT)] == [True]


async def test_its_expressions_are_compiled_once_while_it_is_set(edge: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may take 8 ms, in which nothing else runs."""
    trees = list[bytes]()

    class Counted(Tree):
        def __init__(self, checked: bytes, matcher: Matcher) -> None:
            trees.append(checked)
            super().__init__(checked, matcher)

    monkeypatch.setattr("jqd.rate_limits.matcher.Tree", Counted)
    wish = {
        "match": "job.priority == 77",
        "cost": "job.argument.n * 77",
        "key": "job.argument.k77",
        "rate": {"limit": 1},
    }
    await ask(edge, "PUT", f"{PATH}?dry_run=true", 200, wish)
    await ask(edge, "PUT", PATH, 201, wish)
    assert len(trees) == len(set(trees)) == 3
    assert compiled.cache_info().maxsize == EXPRESSIONS_CACHED


async def test_a_rate_that_is_said_again_tells_since_when_there_is_one(edge: Whole) -> None:
    """A store that forgot what was spent counts from then on, not from when the numbers were changed last."""

    async def said(limit: int | None) -> tuple[int, int]:
        rate = {"concurrency": 1} if limit is None else {"rate": {"limit": limit}}
        await edge.call("PUT", PATH, {"match": "true", **rate}, accept=JSON)
        (setting,) = edge.workers.settings.all(CONSTRAINT)
        edge.clock.advance(1)
        return setting.at_ms, msgspec.msgpack.decode(setting.body).get("rated_ms", 0)

    first_ms, since_ms = await said(5)
    assert since_ms == 0
    assert [(await said(limit))[1] for limit in (6, 7, None, 8)] == [first_ms, first_ms, 0, 0]


@pytest.mark.parametrize(
    ("wish", "pointer", "why"),
    [
        ({"match": "job.name ==", "concurrency": 1}, "/match", "at character 12"),
        (
            {"match": 'job.nam == "pay"', "concurrency": 1},
            "/match",
            "a job has no field 'nam' here; did you mean 'name', at character 5",
        ),
        ({"match": "true", "concurrency": 1, "key": "job.args.x"}, "/key", "did you mean 'argument'"),
        ({"match": "job.argument.x", "concurrency": 1, "key": "foo(1)"}, "/key", "undeclared reference to 'foo'"),
        ({"match": "1 + 1", "concurrency": 1}, "/match", "it must be BOOL"),
        ({"match": "timestamp(job.argument) == null", "concurrency": 1}, "/match", "not known here, at character 10"),
        ({"match": "true", "rate": {"limit": 0}}, "/rate/limit", "1 to"),
        ({"match": "true", "rate": "10/s"}, "/rate", "a map: limit (a whole number, 1 to 1000000000); perhaps per_s"),
        ({"match": "true", "rate": {"limit": 1, "per_s": 0}}, "/rate/per_s", "seconds"),
        ({"match": "true", "concurrency": 0}, "/concurrency", "1 to 10000"),
        ({"match": "true"}, "", "it limits nothing"),
        ({"match": "true", "pause": False}, "", "it limits nothing"),
        ({"match": "true", "concurrency": 1, "cost": "2"}, "/cost", "there is none"),
        ({"match": "true", "pause": "tomorrow"}, "/pause", "tomorrow"),
        ({"match": "true", "pause": "2001-01-01T00:00:00Z"}, "/pause", "has passed"),
        ({"match": "true", "concurrency": 1, "on_error": "stop"}, "/on_error", ""),
        ({"match": "x" * 1_001, "concurrency": 1}, "/match", ""),
    ],
)
async def test_what_means_nothing_is_refused_where_it_stands(
    edge: Whole, wish: dict[str, Any], pointer: str, why: str
) -> None:
    told = await ask(edge, "PUT", PATH, 422, wish)
    assert told["errors"][0]["pointer"] == pointer
    assert why in told["errors"][0]["detail"]
    assert await ask(edge, "GET", "/v1/constraints") == {"constraints": [], "cursor": ""}


async def test_a_trial_that_takes_long_ends_early_and_says_so(edge: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        await edge.push(name="mail")
    monkeypatch.setattr("jqd.rate_limits.service.TRIED_S", -1.0)
    told = await ask(edge, "PUT", f"{PATH}?dry_run=1", 200, {"match": "true", "concurrency": 1})
    assert (told["looked_at"], told["matched"]) == (1, 1)


async def test_a_trial_sees_the_priorities_of_jobs(edge: Whole) -> None:
    for priority in (0, 1, 5, 9):
        await edge.push(priority=priority)
    for match, matched in (("job.priority >= 5", 2), ("job.priority == 0", 1)):
        told = await ask(edge, "PUT", f"{PATH}?dry_run=1", 200, {"match": match, "concurrency": 1})
        assert (told["looked_at"], told["matched"]) == (4, matched)


async def test_a_trial_says_what_would_be_delayed_and_says_nothing(edge: Whole) -> None:
    for customer in ("a", "a", "b", None):
        await edge.push(name="mail", argument={} if customer is None else {"customer": customer})
    await edge.push(name="other")
    wish = {"match": 'job.name == "mail"', "concurrency": 1, "key": "job.argument.customer"}
    told = await ask(edge, "PUT", f"{PATH}?dry_run=1", 200, wish)
    assert told == {
        "looked_at": 5,
        "matched": 3,
        "failed": 1,
        "error": "key: job.argument.customer: there is no field customer",
        "keys": 2,
        "delayed": 2,
        "warning": None,
    }
    assert list(edge.workers.settings.all(CONSTRAINT)) == []


LIMITED = {"match": "true", "rate": {"limit": 10, "per_s": 60, "burst": 5}, "concurrency": 2, "key": "job.name"}
COSTLY = {"match": "true", "rate": {"limit": 10, "per_s": 2_678_400}, "cost": "2"}
LIMITED_APART = "3 times as much"


@pytest.mark.parametrize(
    ("wish", "partitions", "together"),
    [
        (LIMITED, 1, None),
        ({"match": "true", "pause": True}, 3, None),
        (LIMITED, 3, LIMITED_APART),
        (COSTLY, 3, LIMITED_APART),
        # A job may lie elsewhere than its jobtype says: clients of several daemons give each an id.
        ({"match": 'job.name == "mail"', "concurrency": 1}, 3, LIMITED_APART),
    ],
)
async def test_over_several_partitions_it_says_what_that_lets_through(
    edge: Whole, wish: dict[str, Any], partitions: int, together: str | None
) -> None:
    edge.api._parts.services.partitions = partitions
    apart = f"each of the store's {partitions} partitions counts by itself: together up to {together}"
    for query in ("", "?dry_run=1"):
        told = await edge.call("PUT", PATH + query, {**wish, "exact": True}, kind=JSON, accept=JSON)
        if together is None:
            assert told.status == (200 if query else 201), told.body
            assert "exact" not in told.body
            continue
        assert (told.status, [fault["pointer"] for fault in told.body["errors"]]) == (422, ["/exact"])
        remedy = f"; leave out `exact` and set limits {partitions} times as low"
        assert told.body["errors"][0]["detail"] == f"it cannot be exact: {apart}{remedy}"
        assert list(edge.workers.settings.all(CONSTRAINT)) == []
    told = await ask(edge, "PUT", PATH, 201 if together else 200, wish)
    assert (told["partitions"], told["warning"]) == (partitions, together and apart)
    assert await ask(edge, "GET", PATH) == told


async def test_there_are_no_more_of_them_than_can_be_asked(edge: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constraints, "CONSTRAINTS", Share("constraints", 10, own=1))
    wish = {"match": "true", "concurrency": 1}
    for tenant, name, status in (
        ("acme", "a", 201),
        ("acme", "b", 409),
        ("other", "a", 201),
        ("", "a", 201),
        ("", "b", 409),
        ("acme", "a", 200),
    ):
        headers = {"jqd-tenant": tenant}
        told = await edge.call("PUT", f"/v1/constraints/{name}", wish, kind=JSON, accept=JSON, headers=headers)
        assert told.status == status, (tenant, name, told.body)
    await edge.push()
    told = await edge.call("PUT", "/v1/constraints/a?dry_run=1", wish, headers={"jqd-tenant": "acme"})
    assert told.body["looked_at"] == 0, "others' jobs do not exist for it"
