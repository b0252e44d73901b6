"""Jobtypes that are paused: said, shown at type and job, resumed, bounded."""

from typing import Any

import pytest

from jqd.domain.dates import iso
from jqd.domain.pauses import PAUSE, body_of
from jqd.domain.settings import NIL, SettingTable
from jqd.domain.shares import Share
from jqd.service import pauses, settings
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


async def test_a_reason_is_shown_until_another_is_given_or_it_is_resumed(edge: Whole) -> None:
    await edge.push(name="mail")

    async def said(**body: str) -> tuple[str | None, bool]:
        assert (await edge.call("POST", "/v1/types/mail/pause", body)).status == 200
        (mail,) = (await ask(edge, "GET", "/v1/types"))["types"]
        return mail["paused_for"], f"({mail['paused_for']})" in mail["note"]

    assert await said(reason="smtp is down") == ("smtp is down", True)
    assert await said() == ("smtp is down", True)
    assert await said(reason="it is Sunday") == ("it is Sunday", True)
    for wrong in ("x" * 201, "two\nlines"):
        assert (await edge.call("POST", "/v1/types/mail/pause", {"reason": wrong})).status == 422
    await ask(edge, "POST", "/v1/types/mail/resume")
    assert (await ask(edge, "GET", "/v1/types"))["types"][0]["paused_for"] is None


async def test_who_says_it_last_is_right_though_what_was_said_elsewhere_comes_later(edge: Whole) -> None:
    elsewhere = SettingTable()
    began_ms = edge.clock.wall_ms()

    async def meanwhile(what: str, body: bytes) -> None:
        """Said at another daemon, then the opposite here, then what was said there comes."""
        edge.clock.advance(2)
        settings = elsewhere.make({(PAUSE, "mail"): body}, now_ms=edge.clock.wall_ms(), origin=5)
        edge.clock.advance(2)
        await ask(edge, "POST", f"/v1/types/mail/{what}")
        edge.workers.settings.take(settings)

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


async def test_who_pauses_is_told_since_when_also_if_it_is_resumed_in_the_same_moment(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = settings.save

    async def say(services: Any, make: Any) -> None:
        await real(services, make)
        await real(services, lambda: {(PAUSE, "mail"): NIL})

    monkeypatch.setattr(pauses, "save", say)
    assert (await ask(edge, "POST", "/v1/types/mail/pause"))["paused_at"] == iso(edge.clock.wall_ms())


async def test_a_whole_tenant_is_paused_by_itself_or_by_who_runs_jqd(edge: Whole) -> None:
    async def say(what: str, tenant: str | None, status: int = 200) -> Any:
        headers = None if tenant is None else {"jqd-tenant": tenant}
        told = await edge.call("POST", f"/v1/types/{what}", accept=JSON, headers=headers)
        assert told.status == status, told.body
        return told.body

    async def types(tenant: str) -> tuple[Any, Any]:
        told = (await edge.call("GET", "/v1/types", accept=JSON, headers={"jqd-tenant": tenant})).body
        return told["paused"], [(row["name"], row["note"], row["paused_at"]) for row in told["types"]]

    for tenant in ("acme", "other", ""):
        told = await edge.call("POST", "/v1/jobs", {"name": "mail"}, headers={"jqd-tenant": tenant})
        assert told.status == 201
    await edge.apply()
    since = iso(edge.clock.wall_ms())
    assert await say("pause", "acme") == {"tenant": "acme", "paused_at": since, "by": None, "note": None}
    edge.clock.advance(5)
    assert (await say("pause", "acme"))["paused_at"] == since, "it is so already"
    note = f"all jobs of tenant 'acme' are paused since {since}: `jqd types resume --all`"
    row = {"tenant": "acme", "paused_at": since, "by": None, "note": None}
    assert await types("acme") == ([row], [("mail", note, since)])
    assert await types("other") == ([], [("mail", "no worker takes these jobs", None)])
    seen = await ask(edge, "GET", "/v1/types")
    assert [one["tenant"] for one in seen["paused"]] == ["acme"], "who sees all sees it"
    assert f"`jqd --tenant acme {note.partition('`jqd ')[2]}" in str([one["note"] for one in seen["types"]])
    assert (await say("pause", None))["tenant"] == "", "what has no tenant"
    assert "all jobs without a tenant are paused" in str((await types(""))[1])
    for tenant in ("acme", ""):
        assert (await say("resume", tenant))["note"] is None
        assert (await say("resume", tenant))["note"] == f"tenant {tenant!r} was not paused"


async def test_what_who_runs_jqd_paused_no_tenant_resumes(edge: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "HALTED", Share("paused tenants", 10))
    tokens = {}
    theirs = [(f"theirs-{number}", f"t{number}") for number in range(10)]
    for name, tenant in (("theirs", "acme"), ("ours", None), *theirs):
        wish = {"role": "operator", **({"tenant": tenant} if tenant else {})}
        tokens[name] = (await edge.call("POST", "/v1/tokens", wish, accept=JSON)).body

    async def say(what: str, name: str, status: int = 200, tenant: str = "") -> Any:
        headers = {"authorization": f"Bearer {tokens[name]['token']}", **({"jqd-tenant": tenant} if tenant else {})}
        told = await edge.call("POST", f"/v1/types/{what}", accept=JSON, headers=headers)
        assert told.status == status, told.body
        return told.body

    assert (await say("pause", "theirs"))["by"] == tokens["theirs"]["token_id"]
    assert (await say("resume", "theirs"))["paused_at"] is None
    assert (await say("pause", "theirs"))["by"] == tokens["theirs"]["token_id"]
    assert (await say("pause", "ours", tenant="acme"))["by"] == tokens["ours"]["token_id"], "that one is stronger"
    assert (await say("pause", "theirs"))["by"] == tokens["ours"]["token_id"]
    assert "was paused by who runs this jqd" in (await say("resume", "theirs", 403))["detail"]
    rows = (await ask(edge, "GET", "/v1/tenants"))["tenants"]
    assert [row["barred"] for row in rows if row["tenant"] == "acme"] == [True]
    for name, _ in theirs[:9]:
        await say("pause", name)
    assert "there may be 10 paused tenants" in (await say("pause", "ours", 409, tenant="other"))["detail"]
    assert (await say("resume", "ours", tenant="acme"))["paused_at"] is None
    assert "all tenants together may have 9" in (await say("pause", "theirs-9", 409))["detail"], "a tenth is ours"
    await say("pause", "ours", tenant="other")
    notes = (await ask(edge, "GET", "/v1/audit"))["notes"]
    assert [(one["act"], one["tenant"]) for one in notes][:2] == [("tenant pause", "other"), ("tenant resume", "acme")]


@pytest.mark.parametrize("what", ["resume", "pause"])
async def test_what_a_tenant_says_where_nobody_has_heard_of_it_ends_no_pause_of_who_runs_jqd(what: str) -> None:
    here, there = await Whole().begin(), await Whole().begin()
    made = {}
    for tenant in ("acme", ""):
        told = await here.call(
            "POST", "/v1/tokens", {"role": "operator", "tenant": tenant} if tenant else {"role": "operator"}
        )
        made[tenant] = {"authorization": f"Bearer {told.body['token']}"}
    there.workers.settings.take(here.workers.settings.every())

    async def say(edge: Whole, what: str, tenant: str, status: int = 200) -> None:
        told = await edge.call(
            "POST", f"/v1/types/{what}", headers=made[tenant] | ({} if tenant else {"jqd-tenant": "acme"})
        )
        assert told.status == status, told.body

    await say(here, "pause", "")
    there.clock.advance(0.1)
    await say(there, what, "acme")
    here.clock.advance(0.2)
    for one, other in ((here, there), (there, here)):
        one.workers.settings.take(other.workers.settings.every())
    for edge in (here, there):
        await say(edge, "resume", "acme", 403)
        assert [row["tenant"] for row in (await edge.call("GET", "/v1/types")).body["paused"]] == ["acme"]
    await say(there, "resume", "")
    assert (await there.call("GET", "/v1/types")).body["paused"] == []
