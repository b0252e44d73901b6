"""Jobtypes that are paused: said, shown at type and job, resumed, bounded."""

from typing import Any

import pytest
from msgspec import Raw

from jqd.desk import pauses, rules
from jqd.words.dates import iso
from jqd.words.pauses import PAUSE, body_of
from jqd.words.rules import NIL, Rule, Rules
from jqd.words.shares import Share
from tests.api.edge import JSON
from tests.api.whole import Whole


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


async def ask(edge: Whole, method: str, path: str, status: int = 200) -> Any:
    told = await edge.call(method, path, accept=JSON)
    assert told.status == status, told.body
    return told.body


async def test_it_is_said_and_shown_until_it_is_resumed(edge: Whole) -> None:
    job_id = await edge.push(name="mail")
    since = (await ask(edge, "POST", "/v1/types/mail/pause"))["paused_at"]
    edge.clock.advance(5)
    again = await ask(edge, "POST", "/v1/types/mail/pause")
    assert (again["name"], again["paused_at"]) == ("mail", since), "it is so already"
    assert again["note"].startswith("no worker or handler of 'mail' is known here")
    await ask(edge, "POST", "/v1/types/bill/pause")
    bill, mail = sorted((await ask(edge, "GET", "/v1/types"))["types"], key=lambda row: row["name"])
    note = f"'mail' is paused since {since}: `jqd types resume mail`"
    assert (mail["waiting"], mail["note"], mail["paused_at"]) == (1, note, since)
    assert (bill["waiting"], bill["note"]) == (0, None), "one without jobs is shown, too"
    assert (await ask(edge, "GET", f"/v1/jobs/{job_id}"))["note"] == note
    for why in (None, "'mail' was not paused"):
        told = await ask(edge, "POST", "/v1/types/mail/resume")
        assert told == {"name": "mail", "paused_at": None, "note": why}
    await edge.call("POST", "/v1/workers", {"name": "w", "max_jobs": 1, "jobs": ["known"]})
    assert (await ask(edge, "POST", "/v1/types/known/pause"))["note"] is None
    await ask(edge, "POST", "/v1/types/known/resume")
    await ask(edge, "POST", "/v1/types/bill/resume")
    (mail,) = (await ask(edge, "GET", "/v1/types"))["types"]
    assert (mail["note"], mail["paused_at"]) == ("no worker takes these jobs", None)


async def test_who_says_it_last_is_right_though_what_was_said_elsewhere_comes_later(edge: Whole) -> None:
    elsewhere = Rules()
    began_ms = edge.clock.wall_ms()

    async def meanwhile(what: str, body: bytes) -> None:
        """Said at another daemon, then the opposite here, then what was said there comes."""
        edge.clock.advance(2)
        rules = elsewhere.make({(PAUSE, "mail"): body}, now_ms=edge.clock.wall_ms(), origin=5)
        edge.clock.advance(2)
        await ask(edge, "POST", f"/v1/types/mail/{what}")
        edge.workers.rules.take(rules)

    await ask(edge, "POST", "/v1/types/mail/pause")
    await meanwhile("pause", NIL)
    (mail,) = (await ask(edge, "GET", "/v1/types"))["types"]
    assert mail["paused_at"] == iso(began_ms), "since when it was first said"
    await ask(edge, "POST", "/v1/types/mail/resume")
    await meanwhile("resume", body_of(began_ms))
    assert (await ask(edge, "GET", "/v1/types"))["types"] == []


async def test_there_are_no_more_of_them_than_a_look_can_name(edge: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "PAUSED", Share("paused jobtypes", 2))
    for name, status in (("a", 200), ("b", 200), ("c", 409), ("a", 200)):
        await ask(edge, "POST", f"/v1/types/{name}/pause", status)
    await ask(edge, "POST", f"/v1/types/{'x' * 129}/pause", 422)


async def test_one_of_a_newer_jqd_holds_all_the_same(edge: Whole) -> None:
    edge.workers.rules.take([Rule(PAUSE, "a", 5, 1_000, Raw(b"\x80")), Rule(PAUSE, "b", 6, 0, Raw(body_of(2_000)))])
    rows = (await ask(edge, "GET", "/v1/types"))["types"]
    assert [(row["name"], row["paused_at"]) for row in rows] == [
        ("a", "1970-01-01T00:00:01.000Z"),
        ("b", "1970-01-01T00:00:02.000Z"),
    ]


async def test_who_pauses_is_told_since_when_also_if_it_is_resumed_in_the_same_moment(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = rules.say

    async def say(desk: Any, make: Any) -> None:
        await real(desk, make)
        await real(desk, lambda: {(PAUSE, "mail"): NIL})

    monkeypatch.setattr(pauses, "say", say)
    assert (await ask(edge, "POST", "/v1/types/mail/pause"))["paused_at"] == iso(edge.clock.wall_ms())
