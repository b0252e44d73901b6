"""Who changed what: noted before it is done, with the token that it was done with, and never with a secret."""

import msgspec
import trio
import trio.testing
from msgspec import Raw

from jqd.domain import audit
from jqd.domain.array_split import finish
from jqd.domain.audit import FULL_PART, IN_A_ROW, KEPT_MAX, KEPT_S, Doer, kept_of_each, note_of, stale
from jqd.domain.errors import JournalRefused
from jqd.domain.job import Fate
from jqd.domain.settings import AUDIT, Setting
from jqd.domain.tenant import annotate
from jqd.loops.settings import carried, find_unneeded
from tests.api.tokened import ROOT, call
from tests.api.tokened import edge as edge  # the fixture
from tests.api.whole import Whole

AS_ROOT = {"authorization": f"Bearer {ROOT}"}

NOTE = Raw(msgspec.msgpack.encode((1, "t", "operator", "job cancel", "j")))


async def acts(edge: Whole, token: str = ROOT, query: str = "") -> list[tuple[str, str]]:
    told = await call(edge, token, "GET", f"/v1/audit{query}")
    assert told.status == 200, told.body
    return [(row["act"], row["what"]) for row in told.body["notes"]]


async def test_what_is_done_with_a_token_is_noted_and_what_pushers_do_is_not(edge):
    made = (await call(edge, ROOT, "POST", "/v1/tokens", {"role": "operator", "tenant": "acme"})).body
    boss, pusher = made["token"], (await call(edge, ROOT, "POST", "/v1/tokens", {"role": "push"})).body["token"]
    hook = {"lang": "http", "body": "http://127.0.0.1:9/", "options": {"secrets": ["whsec_" + "A" * 32]}}
    job_id = (await call(edge, pusher, "POST", "/v1/jobs", {"name": "mail"})).body["job_id"]
    await edge.apply()
    assert (await call(edge, pusher, "DELETE", f"/v1/jobs/{job_id}")).status == 204
    assert (await call(edge, boss, "POST", "/v1/jobs", {"name": "mail"})).status == 201
    await edge.apply()
    for method, path, body in (
        ("PUT", "/v1/handlers/mail", hook),
        ("PUT", "/v1/schedules/nightly", {"every": 60, "job": {"name": "mail"}}),
        ("POST", "/v1/types/mail/pause", None),
        ("DELETE", "/v1/schedules/nightly", None),
        ("POST", "/v1/jobs/cancel", {"name": "mail", "dry_run": True}),
        ("POST", "/v1/jobs/cancel", {"name": "mail"}),
        ("POST", "/v1/workers", {"name": "w", "jobs": ["mail"], "max_jobs": 1, "worker_id": "w"}),
        ("DELETE", "/v1/workers/w", None),
    ):
        assert (await call(edge, boss, method, path, body)).status < 300, path
    made_up = {"before": "2001-01-01T00:00:00Z", "cursor": "made up"}
    assert (await call(edge, ROOT, "POST", "/v1/jobs/clean", made_up)).status == 200
    assert (await call(edge, ROOT, "POST", f"/v1/jobs/{job_id}/retry")).status == 200
    assert (await call(edge, ROOT, "DELETE", f"/v1/tokens/{made['token_id']}")).status == 200
    everything = [
        ("token revoke", made["token_id"]),
        ("job retry", job_id),
        ("jobs clean", '{"before": "2001-01-01T00:00:00Z", "cursor": "made up"}'),
        ("worker delete", "w"),
        ("jobs cancel", '{"name": "mail"}'),
        ("schedule delete", "nightly"),
        ("pause set", "mail"),
        ("schedule set", "nightly"),
        ("handler set", "mail"),
    ]
    assert (await acts(edge))[: len(everything)] == everything
    told = (await call(edge, ROOT, "GET", "/v1/audit")).body["notes"]
    assert {row["token"] for row in told} == {"root", made["token_id"]}
    assert {row["tenant"] for row in told if row["token"] == made["token_id"]} == {"acme"}
    assert await acts(edge, query=f"?token={made['token_id']}&act=schedule") == [everything[5], everything[7]]
    page = (await call(edge, ROOT, "GET", "/v1/audit?limit=4")).body
    assert await acts(edge, query=f"?cursor={page['cursor']}") == (await acts(edge))[4:]
    assert (await call(edge, pusher, "GET", "/v1/audit")).status == 403
    noted = b"".join(bytes(setting.body) for setting in edge.workers.settings.all(AUDIT))
    assert b"whsec_" not in noted
    assert b"jqd_" not in noted
    other = (await call(edge, ROOT, "POST", "/v1/tokens", {"role": "operator", "tenant": "other"})).body
    assert await acts(edge, other["token"]) == [("token create", other["token_id"])], (
        "another's acts are not its to know"
    )


async def test_what_changes_nothing_leaves_no_note(edge):
    """Thousands of such acts would push out the note of one that did."""
    boss = (await call(edge, ROOT, "POST", "/v1/tokens", {"role": "operator"})).body["token"]
    job_id = (await call(edge, boss, "POST", "/v1/jobs", {"name": "mail", "group": "play"})).body["job_id"]
    await edge.apply()
    (held,) = await edge.claim()
    await edge.end(held, Fate.SUCCEEDED)
    before = await acts(edge)
    for method, path, body, status in (
        ("PATCH", f"/v1/jobs/{job_id}", {"priority": 1}, 409),
        ("POST", f"/v1/jobs/{job_id}/retry", None, 409),
        ("DELETE", f"/v1/jobs/{job_id}", None, 409),
        ("POST", "/v1/jobs/delete", {"search": "zz"}, 200),
        ("POST", "/v1/jobs/cancel", {"name": "mail"}, 200),
        ("POST", f"/v1/jobs/{job_id}/flow/cancel", None, 200),
        ("POST", f"/v1/jobs/{job_id}/flow/retry", None, 200),
        ("POST", "/v1/groups/play/cancel", None, 200),
        ("POST", "/v1/groups/play/retry", None, 200),
    ):
        assert (await call(edge, boss, method, path, body)).status == status, path
    assert await acts(edge) == before
    assert (await call(edge, boss, "POST", "/v1/jobs/delete", {"name": "mail", "state": "succeeded"})).status == 200
    assert [what for what, _ in await acts(edge)] == ["jobs delete", *(what for what, _ in before)]
    await call(edge, boss, "POST", "/v1/jobs", {"name": "mail", "group": "play", "job_id": "new"})
    await edge.apply()
    assert (await call(edge, boss, "POST", "/v1/groups/play/cancel")).status == 200
    assert (await call(edge, boss, "POST", "/v1/groups/play/retry")).status == 200, "the cancelled one did not fail"
    assert (await acts(edge))[:2] == [("group cancel", "play"), ("jobs delete", (await acts(edge))[1][1])]


async def test_notes_of_acts_on_jobs_share_a_sync_and_nobody_who_saves_waits_for_them(edge):
    boss = (await call(edge, ROOT, "POST", "/v1/tokens", {"role": "operator"})).body["token"]
    ids = [(await call(edge, boss, "POST", "/v1/jobs", {"name": "mail"})).body["job_id"] for _ in range(5)]
    await edge.apply()
    edge.journal.hold = trio.Event()
    before = len(edge.journal.frames)
    async with trio.open_nursery() as nursery:
        for job_id in ids:
            nursery.start_soon(call, edge, boss, "DELETE", f"/v1/jobs/{job_id}")
        await trio.testing.wait_all_tasks_blocked()
        assert len(edge.journal.frames) - before == len(ids), "all are written, and wait for one sync"
        assert not edge.workers.settings.saying.locked()
        edge.journal.hold.set()
        edge.journal.hold = None
    notes = await acts(edge)
    assert sorted(what for act, what in notes if act == "job cancel") == sorted(ids)


async def test_an_act_is_not_washed_out_by_thousands_of_others(edge):
    settings, now_ms = edge.workers.settings, 10_000_000_000_000
    doer = Doer("0" * 16, "operator", "acme", "acme")
    evil = note_of(doer, "jobs delete", '{"state": "failed"}', now_ms, 0)
    washes = (note_of(doer, "job change", str(at), now_ms + 1, at) for at in range(FULL_PART * KEPT_MAX))
    settings.take(settings.make(dict([evil, *washes]), now_ms=now_ms, origin=1))
    gone = await find_unneeded(settings, edge.workers, now_ms)
    assert len(gone) == FULL_PART * KEPT_MAX + 1 - KEPT_MAX
    assert evil[0][1] not in [setting.name for setting in gone]


async def test_a_look_for_notes_leaves_the_loop_to_others(edge):
    """All notes of all tenants were sorted and decoded at one go: 0.15 s for a tenant's operator that asked."""
    inject(edge, "other", 2 * IN_A_ROW)
    inject(edge, "acme", 2 * IN_A_ROW)
    looked, tenants = edge.workers.settings, {"", "acme"}
    steps = audit.newest(looked, 5, "", tenants, lambda note: note.tenant == "acme")
    assert sum(1 for _ in steps) == 4, "a thousand at one go"
    newest = finish(audit.newest(looked, 5, "", tenants, lambda note: note.tenant == "acme"))
    assert [place for place, _ in newest] == sorted((place for place, _ in newest), reverse=True)
    assert [note.tenant for _, note in newest] == ["acme"] * 5


async def test_an_act_that_cannot_be_noted_is_not_done(edge):
    token = (await call(edge, ROOT, "POST", "/v1/tokens", {"role": "operator"})).body["token"]
    job_id = (await call(edge, token, "POST", "/v1/jobs", {"name": "mail"})).body["job_id"]
    await edge.apply()
    before = len(edge.journal.frames)
    edge.journal.refuse = JournalRefused("no disk", full=False)
    assert (await call(edge, token, "DELETE", f"/v1/jobs/{job_id}")).status == 503
    assert len(edge.journal.frames) == before
    edge.journal.refuse = None
    assert (await call(edge, token, "GET", f"/v1/jobs/{job_id}")).body["state"] == "waiting"


async def test_notes_go_when_they_are_old_or_many(edge):
    settings, now_ms = edge.workers.settings, 10_000_000_000_000
    old = Setting(AUDIT, "0", 1, now_ms - round(KEPT_S * 1000) - 1, NOTE)
    many = [Setting(AUDIT, f"{n:09}", n + 2, now_ms, NOTE) for n in range(1, KEPT_MAX + 3)]
    theirs = Setting(AUDIT, annotate("acme", "000000000"), 2, now_ms, NOTE)
    settings.take([old, theirs, *many])
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        gone = await find_unneeded(settings, edge.workers, now_ms)
        nursery.cancel_scope.cancel()
    assert [setting.name for setting in gone] == ["0", "000000001", "000000002"]
    assert turns >= len(many) // IN_A_ROW, "100,000 notes in a row would hold the loop for a quarter of a second"
    more = [Setting(AUDIT, f"{n:09}", n + 2, now_ms, NOTE) for n in range(KEPT_MAX + 3, FULL_PART * KEPT_MAX + 1)]
    settings.take(more)
    told = await call(edge, ROOT, "POST", "/v1/types/mail/pause")
    assert (told.status, told.headers["retry-after"]) == (429, "60")
    refused = await call(edge, ROOT, "POST", "/v1/tokens", {"role": "operator", "tenant": "acme"})
    assert refused.status == 429, "whoever he speaks for: it is noted as his"
    assert carried(settings, [old, many[0]], now_ms) == [many[0]]


async def test_however_full_the_notes_are_a_token_can_be_revoked(edge, monkeypatch):
    made = (await call(edge, ROOT, "POST", "/v1/tokens", {"role": "operator"})).body
    monkeypatch.setattr("jqd.domain.audit.FULL_PART", 0)
    assert (await call(edge, made["token"], "POST", "/v1/types/mail/pause")).status == 429
    assert (await call(edge, ROOT, "DELETE", f"/v1/tokens/{made['token_id']}")).status == 200
    assert (await acts(edge))[0] == ("token revoke", made["token_id"])


async def test_no_token_that_may_not_operate_keeps_those_that_may_from_it(edge, monkeypatch):
    """Each role below, until it is refused: what it may have noted is never all that can be."""
    monkeypatch.setattr(audit, "KEPT_MAX", 20)
    tokens = {}
    for role in ("push", "worker", "viewer", "operator", "master"):
        made = await call(edge, ROOT, "POST", "/v1/tokens", {"role": role, "tenant": "acme"})
        tokens[role] = made.body["token"]
    for role in ("push", "worker", "viewer"):
        wish, statuses = {"note": "x", "replace_oldest": True}, list[int]()
        while 429 not in statuses and len(statuses) < 10 * audit.KEPT_MAX:
            statuses.append((await call(edge, tokens[role], "POST", "/v1/tokens/derive", wish)).status)
        assert statuses[-1] == 429, "it is bounded"
    for role in ("operator", "master"):
        for path in ("/v1/types/mail/pause", "/v1/types/pause"):
            assert (await call(edge, tokens[role], "POST", path)).status == 200, role
    gone = await stale(edge.workers.settings, edge.clock.wall_ms())
    for setting in gone:
        edge.workers.settings.forget(setting)
    wish = {"note": "x"}
    assert (await call(edge, tokens["viewer"], "POST", "/v1/tokens/derive", wish)).status == 201, "after the sweep"


def inject(edge: Whole, tenant: str, count: int, what: str = "1") -> None:
    """Notes, as acts of an operator of that tenant leave them."""
    settings, now_ms = edge.workers.settings, edge.clock.wall_ms()
    said = dict(
        note_of(Doer("0" * 16, "operator", tenant, tenant), "job cancel", what, now_ms, at) for at in range(count)
    )
    settings.take(settings.make(said, now_ms=now_ms, origin=1))


async def test_notes_take_no_room_of_what_is_registered_and_are_bounded_of_all_tenants(edge, monkeypatch):
    monkeypatch.setattr("jqd.service.settings.RULES_BYTES_MAX", 20_000)
    monkeypatch.setattr(audit, "ALL_MAX", 100)
    for tenant, count in (("a", 10), ("b", 60), ("c", 70), ("", 120)):
        inject(edge, tenant, count, "\U0001f600" * 300)
    settings, now_ms = edge.workers.settings, edge.clock.wall_ms()
    assert max(setting.size_bytes for setting in settings.all(AUDIT)) < 700
    wish = {"name": "w", "jobs": "*", "max_jobs": 1}
    assert (await call(edge, ROOT, "POST", "/v1/workers", wish)).status == 201
    assert kept_of_each(settings.notes) == 45, "what the first leaves is shared by the others"
    for setting in await stale(settings, now_ms):
        settings.forget(setting)
    assert settings.notes == {"a": 10, "b": 45, "c": 45, "": 120}
    tokens = {}
    for tenant in ("b", "c"):
        made = await call(edge, ROOT, "POST", "/v1/tokens", {"role": "operator", "tenant": tenant})
        tokens[tenant] = made.body["token"]
    inject(edge, "c", 90)
    assert (await call(edge, tokens["c"], "POST", "/v1/types/mail/pause")).status == 429
    assert (await call(edge, tokens["b"], "POST", "/v1/types/mail/pause")).status == 200


async def test_who_runs_jqd_pauses_a_tenant_that_has_all_it_may_have(edge, monkeypatch):
    boss = (await call(edge, ROOT, "POST", "/v1/tokens", {"role": "operator", "tenant": "acme"})).body["token"]
    inject(edge, "acme", FULL_PART * KEPT_MAX)
    monkeypatch.setattr("jqd.service.settings.TENANT_BYTES_MAX", 0)
    assert (await call(edge, boss, "POST", "/v1/types/pause")).status == 429
    for path in ("/v1/types/pause", "/v1/types/mail/pause"):
        told = await edge.call("POST", path, headers={**AS_ROOT, "jqd-tenant": "acme"})
        assert told.status == 200, told.body
    wish = {"match": "true", "concurrency": 1}
    told = await edge.call("PUT", "/v1/constraints/one", wish, headers={**AS_ROOT, "jqd-tenant": "acme"})
    assert told.status == 201, told.body
    seen = (await call(edge, boss, "GET", "/v1/audit?act=tenant pause")).body["notes"]
    assert [(note["token"], note["tenant"]) for note in seen] == [("root", "acme")], "the tenant is told"


async def test_a_tenant_sees_who_made_and_revoked_its_tokens(edge):
    boss = (await call(edge, ROOT, "POST", "/v1/tokens", {"role": "master", "tenant": "acme"})).body["token"]
    made = (await call(edge, ROOT, "POST", "/v1/tokens", {"role": "viewer", "tenant": "acme"})).body["token_id"]
    assert (await call(edge, ROOT, "DELETE", f"/v1/tokens/{made}")).status == 200
    assert (await acts(edge, boss))[:2] == [("token revoke", made), ("token create", made)]
