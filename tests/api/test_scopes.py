"""What a token is for: jobtypes, and how much of other things its holder is told."""

from typing import Any

import pytest

from jqd.api import ApiConfig
from jqd.domain.job import State
from jqd.domain.tenant import in_scope
from jqd.runner import WorkerHealth
from jqd.store import QueuePlace
from tests.api.tokened import ROOT, call, make
from tests.api.tokened import edge as edge  # the fixture
from tests.api.whole import Whole


async def test_who_pushes_is_told_why_his_job_waits_and_nothing_of_what_he_may_not_know(edge, monkeypatch):
    scoped = (await make(edge, "push", scopes=["mail"]))["token"]
    viewer = (await make(edge, "viewer"))["token"]
    mail = (await call(edge, scoped, "POST", "/v1/jobs", {"name": "mail", "priority": 9})).body["job_id"]
    pay = (await call(edge, ROOT, "POST", "/v1/jobs", {"name": "pay", "job_id": "pay-1"})).body["job_id"]
    await edge.apply()
    places = {
        "behind": QueuePlace(2, True, 0, False, 3, [("pay", 7), ("mail", 1)]),
        "limited": QueuePlace(2, True, 0, False, 0, [], limited_by="slow", holds=(pay,)),
    }
    stands = ["behind"]

    async def queue_place(*_: object) -> QueuePlace:
        return places[stands[-1]]

    monkeypatch.setattr(edge.whole, "queue_place", queue_place)

    async def told(token: str, reason: str) -> dict[str, Any]:
        answer = await call(edge, token, "GET", f"/v1/jobs/{mail}/why")
        assert (answer.status, answer.body["reason"]) == (200, reason), answer.body
        shown = (await call(edge, token, "GET", f"/v1/jobs/{mail}")).body.get("note")
        assert shown is None or shown == answer.body["text"]
        body: dict[str, Any] = answer.body
        return body

    card = {"name": "w", "url": "http://127.0.0.1:9", "max_jobs": 1, "jobs": ["mail"], "worker_id": "w-1"}
    assert (await call(edge, ROOT, "POST", "/v1/workers", card | {"priority_max": 3})).status == 201
    assert (await told(scoped, "other_priorities"))["text"] == "no worker takes these jobs with priority 9"
    assert "w takes" in (await told(viewer, "other_priorities"))["text"]
    assert (await call(edge, ROOT, "POST", "/v1/workers", card)).status in (200, 201)
    assert (await told(scoped, "behind"))["better"] == [{"name": "mail", "ready": 1}]
    for reason in places:
        stands.append(reason)
        mine, whole = await told(scoped, reason), await told(viewer, reason)
        assert not {"holds", "more_better", "workers"} & mine.keys()
        assert (mine["ahead"], "pay" in str(mine)) == (2, False)
        assert ("pay" in str(whole)) == (reason == "behind"), "a viewer of one tenant sees what that has"
    seen = WorkerHealth("unreachable", 1, "ConnectionRefused http://127.0.0.1:9")
    monkeypatch.setattr(edge.control, "seen", lambda _: {"d1": seen})
    mine, whole = await told(scoped, "workers_down"), await told(viewer, "workers_down")
    assert ("127.0.0.1" in str(mine), "workers" in mine) == (False, False)
    assert ("127.0.0.1" in str(whole), len(whole["workers"])) == (True, 1)
    paused = await call(edge, ROOT, "POST", "/v1/types/mail/pause")
    assert paused.status == 200
    mine, whole = await told(scoped, "paused"), await told(viewer, "paused")
    assert ("by" in mine, "since" in mine, whole["by"]) == (False, True, "root")
    for job_id in (pay, "pay-1"):
        assert (await call(edge, scoped, "GET", f"/v1/jobs/{job_id}/why")).status == 404


async def test_a_flow_is_not_followed_through_jobs_that_a_token_is_not_for(edge):
    scoped = (await make(edge, "push", scopes=["mail"]))["token"]
    said = [{"name": "mail", "job_id": "a"}, {"name": "mail", "job_id": "b", "after": ["a"]}]
    said += [{"name": "pay", "job_id": "c", "after": ["b"]}, {"name": "mail", "job_id": "d", "after": ["c"]}]
    assert (await call(edge, ROOT, "POST", "/v1/jobs", said)).status == 201
    await edge.link()
    for token, ids in ((scoped, ["a", "b"]), (ROOT, ["a", "b", "c", "d"])):
        told = await call(edge, token, "GET", "/v1/jobs/a/flow")
        assert [job["job_id"] for job in told.body["jobs"]] == ids
        near = {each for job in told.body["jobs"] for each in (*job["children"], *job["parents"])}
        assert near == set(ids), "and no ids of others"
    assert (await call(edge, scoped, "GET", "/v1/jobs/c/flow")).status == 404


async def test_a_token_sees_of_a_group_those_jobs_that_it_is_for(edge):
    scoped = (await make(edge, "push", scopes=["mail"]))["token"]
    said = [{"name": name, "group": "g"} for name in ("mail", "pay", "pay")]
    assert (await call(edge, ROOT, "POST", "/v1/jobs", said)).status == 201
    for token, count in ((scoped, 1), (ROOT, 3)):
        told = (await call(edge, token, "GET", "/v1/groups/g")).body
        assert (told["jobs"], told["counts"]) == (count, {**{state.value: 0 for state in State}, "waiting": count})
    assert (await call(edge, scoped, "POST", "/v1/groups/g/close")).status == 403


async def test_a_scope_bounds_what_is_pushed_seen_and_run(edge):
    boss = (await make(edge, "operator"))["token"]
    scoped = (await make(edge, "worker", scopes=["mail", "bill.*"]))["token"]
    pushed = await call(edge, scoped, "POST", "/v1/jobs", [{"name": "mail"}, {"name": "bill.a"}, {"name": "pay"}])
    assert (pushed.status, [bool(job_id) for job_id in pushed.body["job_ids"]]) == (207, [True, True, False])
    pay = (await call(edge, boss, "POST", "/v1/jobs", {"name": "pay", "job_id": "pay-1"})).body["job_id"]
    await edge.apply()
    for method, path in (("GET", ""), ("GET", "/result"), ("DELETE", "")):
        assert (await call(edge, scoped, method, f"/v1/jobs/{pay}{path}")).status == 404
    for method in ("GET", "DELETE"):
        told = await call(edge, scoped, method, "/v1/jobs/pay-1")
        there_is_none = await call(edge, scoped, method, "/v1/jobs/pay-2")
        assert told.body["detail"].replace("pay-1", "pay-2") == there_is_none.body["detail"], "it is not told apart"
    assert (await call(edge, scoped, "GET", f"/v1/jobs/{pushed.body['job_ids'][0]}")).status == 200
    card = {"name": "w", "max_jobs": 1}
    for jobs in ("*", ["pay"], ["mail", "pay"]):
        told = await call(edge, scoped, "POST", "/v1/workers", {**card, "jobs": jobs})
        assert told.status == 403, jobs
    assert (await call(edge, scoped, "POST", "/v1/workers", {**card, "jobs": ["mail"], "worker_id": "m"})).status == 201
    assert [one.scopes for one in edge.workers.list()] == [("mail", "bill.*")], (
        "what follows posted jobs is bound by it"
    )
    assert (await call(edge, boss, "POST", "/v1/workers", {**card, "jobs": "*", "worker_id": "all"})).status == 201
    asked = {"worker_id": "all", "max_jobs": 9}
    assert (await call(edge, scoped, "POST", "/v1/leases", asked)).status == 404, "by the name of another worker"
    taken_over = await call(edge, scoped, "POST", "/v1/workers", {**card, "jobs": ["mail"], "worker_id": "all"})
    assert taken_over.status == 403
    assert (await call(edge, scoped, "DELETE", "/v1/workers/all")).status == 404
    assert (await call(edge, scoped, "DELETE", "/v1/workers/m")).status == 204
    server = {**card, "url": "http://127.0.0.1:9/"}
    assert (await call(edge, boss, "POST", "/v1/workers", {**server, "jobs": ["pay"]})).status == 201
    told = await call(edge, scoped, "POST", "/v1/workers", {**server, "jobs": ["mail"]})
    assert told.status == 403, "without an id one server is one worker, and that one is another's"
    told = await call(edge, ROOT, "POST", "/v1/tokens", {"role": "viewer", "scopes": ["mail"]})
    assert (told.status, told.body["errors"][0]["pointer"]) == (422, "/scopes")


@pytest.mark.parametrize(
    ("scopes", "name", "is_one"),
    [
        (["mail"], "mail@3", True),
        (["mail"], "mail@", False),
        (["mail"], "mail@x", False),
        (["mail"], "mail@3@4", False),
        (["mail"], "other@3", False),
        (["mail@3"], "mail@3", True),
        (["mail@3"], "mail@4", False),
        (["mail@3"], "mail", False),
        (["m*"], "mail@3", True),
    ],
)
def test_versions_of_a_handler_are_in_the_scope_of_its_jobtype(scopes, name, is_one):
    assert in_scope(scopes, name) == is_one


async def test_a_scope_bounds_what_is_replaced_and_what_follows(edge):
    boss = (await make(edge, "operator"))["token"]
    scoped = (await make(edge, "worker", scopes=["mail"]))["token"]
    for name in ("pay", "mail"):
        told = await call(edge, boss, "POST", "/v1/jobs", {"name": name, "job_id": f"{name}-1", "argument": "secret"})
        assert told.status == 201
    told = await call(edge, scoped, "POST", "/v1/jobs", {"name": "mail", "job_id": "pay-1"})
    assert (told.status, "choose another id, or replace it if it is of a jobtype" in told.body["detail"]) == (409, True)
    told = await call(edge, scoped, "POST", "/v1/jobs", {"name": "mail", "job_id": "pay-1", "replace": True})
    assert told.status == 503, "whose it is is not known before the store has it"
    await edge.apply()
    told = await call(edge, scoped, "POST", "/v1/jobs", {"name": "mail", "job_id": "pay-1", "replace": True})
    assert (told.status, told.body["errors"][0]["pointer"]) == (422, "/job_id")
    assert (await call(edge, boss, "GET", "/v1/jobs/pay-1")).body["argument"] == "secret"
    for job_id in ("mail-1", "mail-2"):
        told = await call(edge, scoped, "POST", "/v1/jobs", {"name": "mail", "job_id": job_id, "replace": True})
        assert told.status == 201, told.body
    await edge.apply()
    held = next(one for one in await edge.claim() if one.job.jobtype == "mail")
    await edge.hand(held)
    card = {"name": "w", "max_jobs": 1, "jobs": ["mail"], "worker_id": "puller"}
    assert (await call(edge, scoped, "POST", "/v1/workers", card)).status == 201
    said = {"job_id": held.job.id, "lease_id": str(held.fence), "type": "success"}
    for follows, status in (
        ({"name": "pay"}, 422),
        ({"name": "mail", "job_id": "pay-1", "replace": True}, 422),
        ({"name": "mail", "job_id": "nightly@2026-12-01T01:30:00.000Z"}, 422),
        ({"name": "mail", "group": "letters"}, 422),
        ({"name": "mail", "then": {"name": "mail", "group": "letters"}}, 422),
        ({"name": "mail"}, 200),
    ):
        told = await call(edge, scoped, "POST", "/v1/outcomes", [{**said, "jobs": [follows]}])
        assert told.body["outcomes"][0]["status"] == status, (follows, told.body)


async def test_the_operators_own_worker_of_lightjq_is_nobody_elses():
    whole = await Whole(ApiConfig(lightjq_workers=("mailer=http://127.0.0.1:8000",))).begin()
    parts = whole.api._parts
    parts.auth = parts.auth._replace(required=True, root=ROOT)
    for said, status in (({"tenant": "acme"}, 403), ({"scopes": ["evil"]}, 403), ({}, 201)):
        token = (await make(whole, "worker", **said))["token"]
        told = await call(whole, token, "POST", "/worker", {"name": "mailer", "max_jobs": 3, "jobs": ["evil"]})
        assert told.status == (400 if status == 403 else status), told.body
    assert [one.url for one in whole.workers.list()] == ["http://127.0.0.1:8000"]


async def test_a_viewer_looks_at_results_and_takes_none_away(edge):
    viewer, pusher = [(await make(edge, role))["token"] for role in ("viewer", "push")]
    pushed = await call(edge, pusher, "POST", "/v1/jobs", {"name": "mail"})
    await edge.apply()
    path = f"/v1/jobs/{pushed.body['job_id']}/result"
    told = [(await call(edge, *who)).status for who in [(viewer, "GET", path), (viewer, "GET", f"{path}?consume=1")]]
    assert told == [200, 403]
    assert (await call(edge, pusher, "GET", f"{path}?consume=1")).status == 200


async def test_a_group_of_jobs_that_are_on_their_way_is_not_joined_unseen(edge, monkeypatch):
    """56 of 60 such pushes were refused, and the others joined."""
    boss, mail = (await make(edge, "operator"))["token"], (await make(edge, "push", scopes=["mail"]))["token"]
    assert (await call(edge, boss, "POST", "/v1/jobs", {"name": "pay", "group": "bills"})).status == 201
    joins = {"name": "mail", "group": "bills"}

    async def wait_ingested(timeout_s: float) -> bool:
        return False

    with monkeypatch.context() as patched:
        patched.setattr(edge.control, "wait_ingested", wait_ingested)
        told = await call(edge, mail, "POST", "/v1/jobs", joins)
    assert (told.status, "on their way" in told.body["detail"]) == (503, True), "the store is far behind"
    assert (await call(edge, mail, "POST", "/v1/jobs", joins)).status == 403
    own = {"name": "mail", "group": "letters"}
    assert [(await call(edge, mail, "POST", "/v1/jobs", own)).status for _ in range(3)] == [201] * 3


async def test_a_scope_bounds_which_groups_are_joined(edge):
    boss = (await make(edge, "operator"))["token"]
    mail, pay = [(await make(edge, "push", scopes=[name]))["token"] for name in ("mail", "pay")]
    for token, job in ((mail, {"name": "mail", "group": "letters"}), (boss, {"name": "pay", "group": "bills"})):
        assert (await call(edge, token, "POST", "/v1/jobs", job)).status == 201
    await edge.apply()
    told = await call(edge, mail, "POST", "/v1/jobs", [{"name": "mail", "group": "bills"}, {"name": "mail"}])
    assert (told.status, "group 'bills' has jobs that this token is not for" in told.body["detail"]) == (403, True)
    for token, name, group, status in ((mail, "mail", "letters", 201), (pay, "pay", "letters", 403)):
        assert (await call(edge, token, "POST", "/v1/jobs", {"name": name, "group": group})).status == status
    assert (await call(edge, boss, "POST", "/v1/jobs", {"name": "pay", "group": "letters"})).status == 201
    joins = {"name": "mail", "group": "bills"}
    for then in ([joins], {"name": "mail", "then": joins}):
        told = await call(edge, mail, "POST", "/v1/jobs", {"name": "mail", "then": then})
        assert (told.status, "group 'bills' has jobs that this token is not for" in told.body["detail"]) == (403, True)
    assert (await call(edge, mail, "POST", "/v1/jobs", {"name": "mail", "then": {"name": "mail"}})).status == 201


async def test_a_scope_takes_no_date_from_a_schedule_that_it_does_not_see(edge):
    """Such a job stood in the place of the date's, and with a date in years the schedule fired nothing any more."""
    scoped, pusher = (await make(edge, "push", scopes=["mail"]))["token"], (await make(edge, "push"))["token"]
    date = {"name": "mail", "job_id": "nightly@2026-12-01T01:30:00.000Z"}
    told = await call(edge, scoped, "POST", "/v1/jobs", date)
    assert (told.status, told.body["errors"][0]["pointer"]) == (422, "/job_id")
    assert (await call(edge, scoped, "POST", "/v1/jobs", {**date, "job_id": "nightly@2026"})).status == 201
    reserved = {"lang": "http", "body": "http://127.0.0.1:9/", "server_only": True}
    for said, status in ((None, 201), (reserved, 422)):
        if said:
            assert (await call(edge, ROOT, "PUT", "/v1/handlers/pay", said)).status == 201
            date["job_id"] = "daily@2026-12-01T01:30:00.000Z"
        assert (await call(edge, pusher, "POST", "/v1/jobs", date)).status == status
