"""Schedules at the edge: said, shown, changed, refused with a finger on what is wrong."""

from typing import Any

import pytest
from cronsim import CronSim

from tests.api.edge import JSON
from tests.api.whole import Whole

NIGHTLY: dict[str, Any] = {"cron": "30 2 * * *", "tz": "Europe/Berlin", "job": {"name": "report", "argument": [1]}}


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


async def put(edge: Whole, name: str = "nightly", status: int = 201, **said: Any) -> dict[str, Any]:
    plan = {field: value for field, value in {**NIGHTLY, **said}.items() if value is not None}
    told = await edge.call("PUT", f"/v1/schedules/{name}", plan, accept=JSON)
    assert told.status == status, told.body
    row: dict[str, Any] = told.body
    return row


async def test_it_is_said_shown_paused_and_deleted(edge):
    edge.clock.set_wall_ms(1_774_738_800_000)  # 2026-03-28 23:00 UTC, an hour before the night without 2:30
    row = await put(edge)
    assert row["next"] == [
        "2026-03-29T01:00:00.000Z",
        "2026-03-30T00:30:00.000Z",
        "2026-03-31T00:30:00.000Z",
        "2026-04-01T00:30:00.000Z",
        "2026-04-02T00:30:00.000Z",
    ]
    assert (row["job"], row["missed"], row["overlap"]) == (
        {"name": "report", "argument": [1], "tags": []},
        "once",
        "queue",
    )
    again = await put(edge, status=200)
    assert again | {"revision": 0} == row | {"revision": 0}, "the same again is nothing new"
    assert again["revision"] > row["revision"]
    paused = (await edge.call("POST", "/v1/schedules/nightly/pause", accept=JSON)).body
    assert (paused["next"], paused["paused_at"]) == ([], "2026-03-28T23:00:00.000Z")
    assert (await put(edge, status=200, jitter=60))["paused_at"], "who puts it again does not resume it"
    edge.clock.advance(86_400)
    resumed = (await edge.call("POST", "/v1/schedules/nightly/resume", accept=JSON)).body
    assert (resumed["next"][0], resumed["paused_at"]) == ("2026-03-30T00:30:00.000Z", None)
    await put(edge, "each", cron=None, tz=None, every=90)
    listed = (await edge.call("GET", "/v1/schedules", accept=JSON)).body["schedules"]
    assert [(row["name"], row["every"]) for row in listed] == [("each", 90.0), ("nightly", None)]
    for status in (204, 404):
        assert (await edge.call("DELETE", "/v1/schedules/nightly")).status == status
    for method, path in (("GET", ""), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/run-now")):
        assert (await edge.call(method, f"/v1/schedules/nightly{path}")).status == 404


async def test_who_asks_for_all_again_has_their_dates_looked_for_once(edge, monkeypatch):
    looks: list[str] = []

    def look(cron: str, *more: Any) -> Any:
        looks.append(cron)
        return CronSim(cron, *more)

    monkeypatch.setattr("jqd.cron.expression.CronSim", look)
    await put(edge, "rare", cron="0 0 29 2 *")
    first = (await edge.call("GET", "/v1/schedules", accept=JSON)).body
    looks.clear()
    assert (await edge.call("GET", "/v1/schedules", accept=JSON)).body == first
    assert looks == []
    edge.clock.advance(3 * 366 * 86_400)
    (row,) = (await edge.call("GET", "/v1/schedules", accept=JSON)).body["schedules"]
    assert row["next"][:2] == first["schedules"][0]["next"][:2], "the first is due, and the second is to come"


async def test_the_list_comes_in_pages_by_name(edge):
    for name in ("d", "b", "a", "c", "e"):
        await put(edge, name)
    pages, cursor = [], ""
    while True:
        told = (await edge.call("GET", f"/v1/schedules?limit=2&cursor={cursor}", accept=JSON)).body
        pages.append([row["name"] for row in told["schedules"]])
        cursor = told["cursor"]
        if not cursor:
            break
        await edge.call("DELETE", f"/v1/schedules/{pages[-1][-1]}")  # its place stays
    assert pages == [["a", "b"], ["c", "d"], ["e"]]
    for wrong in ("limit=0", "limit=1001", "limit=x", "name=a"):
        assert (await edge.call("GET", f"/v1/schedules?{wrong}")).status == 422


async def test_only_another_recurrence_begins_anew(edge):
    first = await put(edge, cron=None, tz=None, every=60)
    edge.clock.advance(50)
    assert (await put(edge, cron=None, tz=None, every=60, status=200, missed="all"))["next"] == first["next"]
    assert (await put(edge, cron=None, tz=None, every=61, status=200))["next"][0] > first["next"][0]


async def test_its_job_is_pushed_at_once_with_what_was_registered_for_it(edge):
    await edge.call("POST", "/v1/workers", {"name": "w", "max_jobs": 1, "jobs": [{"name": "report", "timeout": 7}]})
    await put(edge, job={"name": "report", "argument": {"a": 1}, "max_retry": 2, "tags": ["x"]})
    told = await edge.call("POST", "/v1/schedules/nightly/run-now", accept=JSON)
    assert told.status == 201
    await edge.apply()
    job = (await edge.call("GET", f"/v1/jobs/{told.body['job_id']}", accept=JSON)).body
    assert (job["argument"], job["max_retry"], job["timeout"], job["tags"]) == ({"a": 1}, 2, 7.0, ["x"])


@pytest.mark.parametrize(
    ("said", "pointer", "why"),
    [
        ({"cron": "30 25 * * *"}, "/cron", "character 4 of '30 25 * * *': '25' is no hour"),
        ({"cron": "0 0 1,32 * *"}, "/cron", "character 7 of '0 0 1,32 * *': '32' is no day of the month"),
        ({"cron": "0 0 30 2 *"}, "/cron", "no such date comes"),
        ({"cron": "0 0 31 4,6 *"}, "/cron", "no such date comes"),
        ({"cron": "* * */20 * 1L"}, "/cron", "no such date comes"),
        ({"cron": "0 0 * *"}, "/cron", "has 4 fields"),
        ({"cron": "@reboot"}, "/cron", "has 1 fields"),
        ({"cron": "  "}, "/cron", "has 0 fields"),
        ({"cron": None}, "/cron", "cron or every is required"),
        ({"every": 5}, "/cron", "exclude each other"),
        ({"cron": None, "every": 60}, "/tz", "tz goes with cron"),
        ({"cron": None, "tz": None, "every": 0.5}, "/every", "a number of seconds, 1 to"),
        ({"cron": "x * * * *", "tz": "Berlin"}, "/cron", "is no minute"),
        ({"tz": "Berlin"}, "/tz", "did you mean 'Europe/Berlin'?"),
        ({"tz": "../etc/passwd"}, "/tz", "is no time zone"),
        ({"tz": "localtime"}, "/tz", "is no time zone"),
        ({"until": "2020-01-01T00:00:00Z"}, "/until", "no date comes before until"),
        ({"until": "tomorrow"}, "/until", "is no ISO 8601 date"),
        ({"job": {"argument": 1}}, "/job/name", "name is required"),
        ({"job": {"name": "a", "job_id": "x"}}, "/job/job_id", "there is no field 'job_id'"),
        ({"job": {"name": "a\n"}}, "/job/name", "printable"),
        ({"job": {"name": "a", "argument": "x" * 65_536}}, "/job/argument", "at most 65536 bytes"),
        ({"missed": "never"}, "/missed", "one of skip, once, all"),
        ({"jitter": -1}, "/jitter", "a number of seconds, 0 to 86400"),
        ({"cron": None, "tz": None, "every": 60, "jitter": 60}, "/jitter", "jitter must be below every, 60 s, not 60"),
    ],
)
async def test_what_is_wrong_is_pointed_at(edge, said, pointer, why):
    told = await put(edge, status=422, **said)
    assert (told["errors"][0]["pointer"], why in told["errors"][0]["detail"]) == (pointer, True), told
    assert (await edge.call("GET", "/v1/schedules", accept=JSON)).body == {"schedules": [], "cursor": ""}


async def test_a_name_must_leave_room_for_a_date(edge):
    assert (await put(edge, "x" * 101, status=422))["errors"][0]["pointer"] == "/name"
    assert (await put(edge, "x" * 100))["name"] == "x" * 100
