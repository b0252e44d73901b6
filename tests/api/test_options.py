"""Options of jobs that a worker registered: they count where a pusher says nothing, and change no content."""

from typing import Any

import msgspec
import pytest

from jqd.domain.job_spec import JobOptions
from jqd.service import registered_options as service_options
from jqd.service.workers import unneeded_options
from tests.api.edge import JSON
from tests.api.whole import Whole

CARD: dict[str, Any] = {"name": "mailer", "max_jobs": 8, "url": "http://127.0.0.1:8000/jobs"}
SAID = {"name": "mail", "timeout": 20.0, "max_retry": 3, "keep_result": True, "priority": -5}


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


async def register(edge: Whole, *jobs: object, **more: object) -> str:
    told = await edge.call("POST", "/v1/workers", {**CARD, "jobs": list(jobs), **more})
    assert told.status == 201, told.body
    worker_id: str = told.body["worker_id"]
    return worker_id


async def pushed(edge: Whole, *jobs: dict[str, Any], path: str = "/v1/jobs") -> list[tuple[Any, ...]]:
    """What counts for each of them, in the order in which they are taken."""
    frames = len(edge.journal.frames)
    body = list(jobs) if path == "/v1/jobs" else jobs[0]
    assert (await edge.call("POST", path, body)).status in (200, 201)
    new = edge.journal.jobs()[-len(jobs) :] if len(edge.journal.frames) > frames else []
    return [(job.timeout, job.max_retry, job.keep_result, job.priority) for job in new]


async def test_what_a_pusher_leaves_out_is_as_it_was_registered_and_what_he_says_wins(edge):
    assert await pushed(edge, {"name": "mail"}) == [(30.0, 5, False, 0)]
    await register(edge, SAID, "other")
    said = {"name": "mail", "timeout": 7, "max_retry": 5, "keep_result": False, "priority": 0}
    assert await pushed(edge, {"name": "mail"}, {"name": "other"}, said, {"name": "mail", "max_retry": 9}) == [
        (20.0, 3, True, -5),
        (30.0, 5, False, 0),
        (7.0, 5, False, 0),
        (20.0, 9, True, -5),
    ]
    assert await pushed(edge, {"name": "mail"}, {"name": "mail"}) == [(20.0, 3, True, -5)] * 2
    light = {"name": "mail", "argument": None}
    assert await pushed(edge, light, path="/job") == [(20.0, 3, True, -5)]
    assert await pushed(edge, {**light, "name": "other"}, path="/job") == [(30.0, 10, False, 0)], (
        "LightJQ's own default"
    )


async def test_what_a_daemon_is_told_counts_where_nobody_says_anything(edge):
    edge.api._parts.services.options.set_configured(JobOptions(max_retry=99, expires_in=60.0))
    await register(edge, {"name": "mail", "expires_in": 5, "timeout": 7})
    jobs = [
        {"name": "mail"},
        {"name": "other"},
        {"name": "mail", "expires_in": 1, "max_retry": 2},
        {"name": "mail", "delay": 9},
    ]
    assert (await edge.call("POST", "/v1/jobs", jobs)).status == 201
    *_, one, other, third, dated = edge.journal.jobs()
    at_ms = one.created_at_ms
    assert [(job.max_retry, job.timeout, job.expires_at_ms - at_ms) for job in (one, other, third, dated)] == [
        (99, 7.0, 5_000),
        (99, 30.0, 60_000),
        (2, 7.0, 1_000),
        (99, 7.0, 14_000),
    ]
    assert (await edge.call("POST", "/v1/jobs", {"name": "other", "job_id": "x"})).status == 201
    assert (await edge.call("POST", "/v1/jobs", {"name": "other", "job_id": "x"})).status == 200, "no other content"
    assert (await edge.call("POST", "/v1/jobs", {"name": "mail", "expires_in": None})).status == 201
    assert edge.journal.jobs()[-1].expires_at_ms == 0, "null is said, too: it never expires"
    plan = {"every": 60, "job": {"name": "other", "expires_in": 8}}
    assert (await edge.call("PUT", "/v1/schedules/s", plan)).status == 201
    assert (await edge.call("POST", "/v1/schedules/s/run-now")).status == 201
    assert edge.journal.jobs()[-1].expires_at_ms - edge.journal.jobs()[-1].created_at_ms == 8_000


async def test_a_jobtype_and_a_pusher_may_have_waits_of_their_own(edge):
    """They are kept, shown, and hold through an edit; what is wrong is said of a push as of a registration."""
    await register(edge, {"name": "mail", "backoff": [10, 60]})
    jobs = [{"name": "mail", "job_id": "a"}, {"name": "mail", "backoff": 2.5}, {"name": "mail", "backoff": []}]
    told = await edge.call("POST", "/v1/jobs", jobs)
    await edge.apply()
    shown = [(await edge.call("GET", f"/v1/jobs/{job_id}", accept=JSON)).body for job_id in told.body["job_ids"]]
    assert [job.get("backoff") for job in shown] == [[10.0, 60.0], 2.5, None]
    assert (await edge.call("GET", "/v1/types", accept=JSON)).body["types"][0]["options"] == {"backoff": [10.0, 60.0]}
    assert (await edge.call("PATCH", "/v1/jobs/a", {"priority": -3})).body["priority"] == -3
    assert [held.job.backoff for held in await edge.claim()] == [(10.0, 60.0), 2.5, ()]
    refused = await edge.call("POST", "/v1/jobs", {"name": "mail", "backoff": [-1]}, accept=JSON)
    assert (refused.status, refused.body["errors"][0]["pointer"]) == (422, "/backoff/0")


async def test_the_latest_registration_that_says_something_new_holds(edge):
    first = await register(edge, SAID, name="a", url="http://127.0.0.1:1/")
    second = await register(edge, {"name": "mail", "timeout": 9}, name="b", url="http://127.0.0.1:2/")
    await register(edge, SAID, name="a", url="http://127.0.0.1:1/")  # a repetition says nothing new
    await register(edge, "mail", name="c", url="http://127.0.0.1:3/")  # and a plain name nothing at all
    assert await pushed(edge, {"name": "mail"}) == [(9.0, 5, False, 0)]
    listed = (await edge.call("GET", "/v1/workers", accept=JSON)).body["workers"]
    rows = {row["worker_id"]: row for row in listed}
    assert [rows[worker_id]["overruled"] for worker_id in (first, second)] == [["mail"], []]
    assert rows[first]["options"] == {"mail": {key: value for key, value in SAID.items() if key != "name"}}
    await edge.apply()
    (told,) = (await edge.call("GET", "/v1/types", accept=JSON)).body["types"]
    assert (told["options"], told["options_by"]) == ({"timeout": 9.0}, second)
    assert (await edge.call("DELETE", f"/v1/workers/{second}")).status == 204
    assert await pushed(edge, {"name": "mail"}) == [(9.0, 5, False, 0)], "they outlive the worker: a deploy is short"
    await register(edge, {"name": "mail"}, name="d", url="http://127.0.0.1:4/")
    assert await pushed(edge, {"name": "mail"}) == [(30.0, 5, False, 0)], "a map without any takes them back"


async def test_an_old_program_and_its_new_version_do_not_undo_each_others_options_by_repeating(edge):
    """Both behind one URL, or each with an id of its own, for as long as the deploy takes."""
    new, shared = {"name": "mail", "timeout": 9}, {"name": "s", "url": "http://127.0.0.1:1/", "ttl": 30}
    for old_id, new_id in (({}, {}), ({"worker_id": "old"}, {"worker_id": "new"})):
        await register(edge, SAID, **shared, **old_id)
        await register(edge, new, **shared, **new_id)
        frames = len(edge.journal.frames)
        for _ in range(20):
            edge.clock.advance(10)
            await register(edge, SAID, **shared, **old_id)
            await register(edge, new, **shared, **new_id)
        assert len(edge.journal.frames) == frames, "no repetition writes a record"
        assert await pushed(edge, {"name": "mail"}) == [(9.0, 5, False, 0)]
    await register(edge, SAID, **shared, worker_id="old", trouble="stuck")
    await register(edge, SAID, **shared, worker_id="old")
    assert not any(row["trouble"] for row in (await edge.call("GET", "/v1/workers")).body["workers"])
    assert await pushed(edge, {"name": "mail"}) == [(9.0, 5, False, 0)], "the old one said nothing new of options"


async def test_a_deploy_that_is_taken_back_holds_once_the_newer_program_is_silent(edge):
    new, shared = {"name": "mail", "timeout": 9}, {"name": "s", "url": "http://127.0.0.1:1/", "ttl": 30}
    await register(edge, SAID, **shared)
    await register(edge, new, **shared)
    for _ in range(4):
        edge.clock.advance(10)
        await register(edge, SAID, **shared)
    assert await pushed(edge, {"name": "mail"}) == [(20.0, 3, True, -5)]


async def test_the_same_content_is_the_same_whatever_was_registered_in_between(edge):
    job = {"name": "mail", "job_id": "mine"}
    assert await pushed(edge, job) == [(30.0, 5, False, 0)]
    await edge.apply()
    await register(edge, SAID)
    assert (await edge.call("POST", "/v1/jobs", job)).body["duplicate"] is True
    assert await pushed(edge, {**job, "job_id": "yours"}) == [(20.0, 3, True, -5)]
    await edge.apply()
    (held,) = [held for held in await edge.claim() if held.job.name == "yours"]
    assert (held.job.timeout, held.job.priority) == (20.0, -5), "the store has it so, too"
    await register(edge, {"name": "mail"}, name="other", url="http://127.0.0.1:2/")
    assert (await edge.call("POST", "/v1/jobs", {**job, "job_id": "yours"})).body["duplicate"] is True


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"name": "mail", "backoff": 0}, "seconds above 0, at most 2592000"),
        ({"name": "mail", "backoff": [1, "2"]}, "backoff/1 must be a number"),
        ({"name": "mail", "backoff": [1.5] * 33}, "an array of up to 32"),
        ({"name": "mail", "timeout": 0}, "timeout"),
        ({"name": "mail", "max_retry": -1}, "max_retry"),
        ({"name": "mail", "retries": 1}, "retries"),
        ({"timeout": 5}, "name"),
        ({"name": "a\n"}, "printable"),
    ],
)
async def test_an_option_that_is_wrong_is_named(edge, entry, why):
    told = await edge.call("POST", "/v1/workers", {**CARD, "jobs": ["other", entry]}, accept=JSON)
    assert told.status == 422
    assert why in msgspec.json.encode(told.body).decode()
    assert (await edge.call("GET", "/v1/workers")).body == {"workers": [], "cursor": ""}


async def test_options_that_no_registration_names_any_more_go_after_a_week_and_the_oldest_of_too_many_at_once(
    edge, monkeypatch
):
    """With their worker they would go too soon: what is pushed during a deploy gets them, too."""
    await register(edge, SAID, {"name": "gone", "timeout": 9}, worker_id="w")
    await register(edge, SAID, worker_id="w")
    options, settings = edge.api._parts.services.options, edge.workers.settings

    async def tidy() -> list[str]:
        said = unneeded_options(edge.api._parts.services)
        settings.take(settings.make(said, now_ms=edge.clock.wall_ms(), origin=1))
        return [name for _, name in said]

    assert await tidy() == []
    edge.clock.advance(6 * 86_400)
    assert await tidy() == []
    edge.clock.advance(2 * 86_400)
    assert await tidy() == ["gone"]
    assert [*options.known] == ["mail"]
    monkeypatch.setattr(service_options, "UNNAMED_MAX", 1)
    await register(edge, *({"name": name, "timeout": 9} for name in "abc"), worker_id="v")
    await register(edge, "x", worker_id="v")
    assert await tidy() == ["a", "b"]


async def test_names_that_are_made_up_do_not_open_what_is_server_only(edge, monkeypatch):
    """Its worker is down, and somebody else registers and drops thousands of names."""
    monkeypatch.setattr(service_options, "UNNAMED_MAX", 1)
    await register(edge, {"name": "pay", "server_only": True}, worker_id="w")
    await register(edge, "x", worker_id="w")
    await register(edge, *({"name": name, "timeout": 9} for name in "abc"), worker_id="v")
    await register(edge, "x", worker_id="v")
    services = edge.api._parts.services
    assert [name for _, name in unneeded_options(services)] == ["a", "b"]
    edge.clock.advance(8 * 86_400)
    assert ("options", "pay") in unneeded_options(services), "a week is enough"
