"""Workers, health and counters through ASGI."""

from typing import Any

import pytest
import trio
import trio.testing

from jqd.domain.errors import JournalRefused
from jqd.runner import WorkerHealth
from jqd.runner.worker_health import WELL
from jqd.service import settings as service_settings
from jqd.service.settings import save
from tests.api.edge import JSON, MSGPACK, Edge
from tests.api.whole import Whole

CARD: dict[str, Any] = {"name": "mailer", "max_jobs": 8, "url": "http://127.0.0.1:8000/jobs", "jobs": ["mail"]}


@pytest.fixture
def edge() -> Edge:
    return Edge()


async def test_a_worker_registers_is_listed_and_leaves(edge):
    card = {**CARD, "batch": 4, "batch_linger_ms": 7, "heartbeat": 9.5, "priority_min": -5, "priority_max": 5}
    told = await edge.call("POST", "/v1/workers", card)
    assert told.status == 201
    worker_id = told.body["worker_id"]
    listed = await edge.call("GET", "/v1/workers", accept=JSON)
    (row,) = listed.body["workers"]
    assert row == {
        **card,
        "worker_id": worker_id,
        "ttl": None,
        "style": "native",
        "format": "msgpack",
        "method": "POST",
        "headers": [],
        "signed": False,
        "options": {},
        "overruled": [],
        "trouble": None,
        "state": "ok",
        "why": None,
        "in_flight": 0,
        "seen": [{"daemon": "fake", "state": "ok", "since": None, "complaint": None, "why": None, "until": None}],
        "registered_at": "2027-01-15T08:00:00.000Z",
        "last_seen_at": "2027-01-15T08:00:00.000Z",
        "token_id": None,
    }
    assert (await edge.call("DELETE", f"/v1/workers/{worker_id}")).status == 204
    assert (await edge.call("DELETE", f"/v1/workers/{worker_id}")).status == 404
    assert (await edge.call("GET", "/v1/workers")).body == {"workers": [], "cursor": ""}


async def test_what_troubles_a_worker_is_shown_until_it_says_so_no_more(edge):
    told = await edge.call("POST", "/v1/workers", {**CARD, "trouble": "16 threads are stuck"})
    (row,) = (await edge.call("GET", "/v1/workers")).body["workers"]
    assert row["trouble"] == "16 threads are stuck"
    await edge.call("POST", "/v1/workers", {**CARD, "worker_id": told.body["worker_id"]})
    (row,) = (await edge.call("GET", "/v1/workers")).body["workers"]
    assert row["trouble"] is None
    for wrong in ("x" * 8_001, "a\nb", ""):
        refused = await edge.call("POST", "/v1/workers", {**CARD, "trouble": wrong})
        assert (refused.status, refused.body["errors"][0]["pointer"]) == (422, "/trouble")


@pytest.mark.parametrize("path", ["/v1/workers", "/worker"])
async def test_a_url_is_judged_by_where_its_registration_comes_from(edge, path):
    async def register(url: str) -> int:
        status: int = (await edge.call("POST", path, {**CARD, "url": url})).status
        return status

    refused = 422 if path == "/v1/workers" else 400
    assert await register("http://169.254.169.254/latest/meta-data") == refused
    edge.client = ("10.0.0.9", 1)
    assert await register("http://127.0.0.1:6379/") == refused
    assert await register("http://10.0.0.9:9000/") == 201
    edge.client = ("8.8.8.8", 1)
    assert await register("http://10.0.0.9:9000/") == refused
    edge.client = None  # a unix socket
    assert await register("http://localhost:9000/") == 201


async def test_a_ttl_is_repeated_with_the_id(edge):
    told = await edge.call("POST", "/v1/workers", {**CARD, "ttl": 10}, kind=JSON)
    worker_id = told.body["worker_id"]
    edge.clock.advance(8)
    told = await edge.call("POST", "/v1/workers", {**CARD, "ttl": 10, "worker_id": worker_id})
    assert (told.status, told.body["worker_id"]) == (201, worker_id)
    edge.clock.advance(8)
    assert [worker.id for worker in edge.workers.list()] == [worker_id]
    edge.clock.advance(3)
    assert (await edge.call("GET", "/v1/workers")).body == {"workers": [], "cursor": ""}


async def test_a_full_disk_takes_no_news_of_a_worker_and_forgets_none(edge):
    card = {**CARD, "ttl": 10, "worker_id": "w1"}
    assert (await edge.call("POST", "/v1/workers", card)).status == 201
    edge.journal.refuse = JournalRefused("no space left on /var/lib/jqd", full=True)
    assert (await edge.call("POST", "/v1/workers", {**card, "worker_id": "w2", "url": "http://[::1]:1/"})).status == 507
    edge.clock.advance(8)
    assert (await edge.call("POST", "/v1/workers", {**card, "max_jobs": 9})).status == 507
    edge.clock.advance(8)
    assert [(worker.id, worker.max_jobs) for worker in edge.workers.list()] == [("w1", 8)]
    edge.clock.advance(8)
    assert edge.workers.list() == [], "silent for longer than its ttl"
    assert (await edge.call("POST", "/v1/workers", card)).status == 507
    assert [worker.id for worker in edge.workers.list()] == ["w1"], "it said a word, so it is back"


async def test_a_worker_without_url_pulls(edge):
    assert (await edge.call("POST", "/v1/workers", {"name": "w", "max_jobs": 1, "jobs": ["mail"]})).status == 201


@pytest.mark.parametrize("missing", [{}, {"jobs": None}])
async def test_who_takes_every_jobtype_says_so(edge, missing):
    card = {key: value for key, value in CARD.items() if key != "jobs"}
    told = await edge.call("POST", "/v1/workers", {**card, **missing})
    assert told.status == 422
    for part in ("jobs must be" if missing else "jobs is required", '["mail"]', 'or "*" for every one'):
        assert part in told.body["detail"]
    assert edge.workers.list() == []
    assert (await edge.call("POST", "/v1/workers", {**card, "jobs": "*"})).status == 201
    (worker,) = edge.workers.list()
    assert worker.takes("anything", 0)
    (row,) = (await edge.call("GET", "/v1/workers")).body["workers"]
    assert row["jobs"] == "*", "what is told can be said again"


@pytest.mark.parametrize(
    ("card", "pointer"),
    [
        ({"name": "w", "jobs": "*"}, "/max_jobs"),
        ({"max_jobs": 1, "jobs": "*"}, "/name"),
        ({**CARD, "max_jobs": 0}, "/max_jobs"),
        ({**CARD, "max_jobs": "many"}, "/max_jobs"),
        ({**CARD, "url": "file:///etc/passwd"}, "/url"),
        ({**CARD, "url": "http://user:secret@host/"}, "/url"),
        ({**CARD, "jobs": "mail"}, "/jobs"),
        ({**CARD, "jobs": [1]}, "/jobs/0"),
        ({**CARD, "ttl": 0}, "/ttl"),
        ({**CARD, "priority_min": 2, "priority_max": 1}, "/priority_max"),
        ({**CARD, "maxjobs": 3}, "/maxjobs"),
        ([], ""),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [MSGPACK, JSON])
async def test_what_is_wrong_with_a_card_is_named(edge, card, pointer, kind):
    told = await edge.call("POST", "/v1/workers", card, kind=kind)
    assert told.status == 422
    assert [error["pointer"] for error in told.body.get("errors", [{"pointer": ""}])] == [pointer]
    assert edge.workers.list() == []


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"\xc1", MSGPACK, 400),
        (b"", MSGPACK, 400),
        (b"{", JSON, 400),
        (b"\x81\xa1a" * 100_000, MSGPACK, 400),
        (b'{"name":"w","jobs":"*","max_jobs":%d}' % 2**70, JSON, 422),
        (b"[" * 100_000, JSON, 400),
        (b"{}", "text/plain", 415),
        (b"{}", None, 415),
        (b"\x00" * (1 << 20) + b"\x00", MSGPACK, 413),
    ],
    ids=lambda part: repr(part)[:20],
)
async def test_what_cannot_be_read(edge, body, kind, status):
    assert (await edge.call("POST", "/v1/workers", body, kind=kind)).status == status


# ------------------------------------------------------------ health


async def test_ready_in_both_halves(edge):
    assert (await edge.call("GET", "/livez")).body == {"live": True}
    told = await edge.call("GET", "/readyz")
    ready = {"ready": True, "reason": None}
    assert (told.status, told.body) == (200, {"status": "ready", "push": ready, "run": ready, "warnings": []})
    assert (await edge.call("GET", "/readyz/push")).status == 200
    assert (await edge.call("GET", "/readyz/run")).status == 200


async def test_without_the_store_it_is_still_ready_for_pushes(edge):
    edge.control.not_running = "the store does not answer"
    told = await edge.call("GET", "/readyz")
    assert (told.status, told.body["status"]) == (200, "degraded")
    assert told.body["run"] == {"ready": False, "reason": "the store does not answer"}
    assert (await edge.call("GET", "/readyz/push")).status == 200
    assert (await edge.call("GET", "/readyz/run")).status == 503


async def test_not_ready_for_pushes_is_not_ready(edge):
    edge.control.not_pushing = "draining"
    told = await edge.call("GET", "/readyz", accept=MSGPACK)
    assert (told.status, told.body["status"]) == (503, "not ready")
    assert told.body["push"]["reason"] == "draining"
    assert (await edge.call("GET", "/readyz/push")).status == 503
    assert (await edge.call("GET", "/readyz/run")).status == 200


async def test_warnings_are_shown(edge):
    edge.control.warned = ["segment 7 is damaged"]
    told = await edge.call("GET", "/readyz")
    assert (told.status, told.body["status"], told.body["warnings"]) == (200, "degraded", ["segment 7 is damaged"])


async def test_stats_with_and_without_the_store(edge):
    told = await edge.call("GET", "/v1/stats")
    assert told.status == 200
    assert (told.body["daemon"], told.body["store"]["waiting"], told.body["store"]["dead"]) == ("fake", 1, 5)
    edge.store.away = True
    told = await edge.call("GET", "/v1/stats")
    assert (told.status, told.body["store"]) == (200, None)
    assert "does not answer" in told.body["store_error"]


# ------------------------------------------------------------ other paths


@pytest.mark.parametrize("accept", [JSON, MSGPACK])
async def test_no_such_path(edge, accept):
    told = await edge.call("GET", "/v1/nothing", accept=accept)
    assert (told.status, told.body["status"], told.body["title"]) == (404, 404, "Not Found")


async def test_a_wrong_method_names_the_right_ones(edge):
    for method, path in [("PUT", "/v1/workers"), ("PATCH", "/job"), ("PUT", "/v1/jobs")]:
        told = await edge.call(method, path)
        assert told.status == 405
        assert "POST" in told.headers["allow"]


async def test_who_registers_while_its_farewell_is_due_stays(edge):
    async def register() -> None:
        assert (await edge.call("POST", "/v1/workers", CARD)).status == 201

    await register()
    (worker,) = edge.workers.list()
    assert edge.workers.unregister(worker.id, "unreachable")
    edge.journal.hold = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(register)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(save, edge.api._parts.services, edge.workers.farewells)
        await trio.testing.wait_all_tasks_blocked()
        edge.journal.hold.set()
    assert edge.workers.list() == [worker]


async def test_all_that_is_registered_together_is_bounded_and_what_takes_no_more_goes_on(edge, monkeypatch):
    monkeypatch.setattr(service_settings, "RULES_BYTES_MAX", 3_000)
    told = [await edge.call("POST", "/v1/workers", {**CARD, "worker_id": f"w{n}"}) for n in range(20)]
    statuses = [one.status for one in told]
    assert set(statuses) == {201, 422}
    assert statuses == sorted(statuses), "the first ones fit"
    assert "all registrations, handlers and options of jobtypes together may take" in told[-1].body["detail"]
    assert edge.workers.settings.size_bytes <= 3_000
    assert (await edge.call("POST", "/v1/workers", {**CARD, "worker_id": "w0", "max_jobs": 9})).status == 201
    assert (await edge.call("DELETE", "/v1/workers/w1")).status == 204
    assert edge.workers.settings.size_bytes == sum(setting.size_bytes for setting in edge.workers.settings.every())


async def test_secrets_stay_until_they_are_taken_back(edge):
    """A worker that verifies would refuse what is not signed, and its jobs would fail for good."""
    said = {**CARD, "worker_id": "w", "url": "http://localhost/jobs", "ttl": 9, "secrets": ["whsec_" + "A" * 32]}
    assert (await edge.call("POST", "/v1/workers", said)).status == 201
    (worker,) = edge.workers.list()
    del said["secrets"]

    async def signed() -> bool:
        assert (await edge.call("POST", "/v1/workers", said)).status == 201
        (row,) = (await edge.call("GET", "/v1/workers")).body["workers"]
        (known,) = edge.workers.list()
        assert known.secrets == (worker.secrets if row["signed"] else ())
        return bool(row["signed"])

    assert await signed()
    said["max_jobs"] = 3
    assert await signed()
    edge.clock.advance(20)
    assert edge.workers.list() == []
    assert await signed(), "it was silent for longer than its ttl"
    said["url"] = "http://LOCALHOST:80/other/path"
    assert await signed(), "it is the same server"
    said["secrets"] = []
    assert not await signed()
    del said["secrets"]
    assert not await signed()
    await edge.call("DELETE", "/v1/workers/w")
    assert not await signed()


@pytest.mark.parametrize("url", ["https://localhost/jobs", "http://127.0.0.1/jobs", "http://localhost:81/jobs", None])
async def test_secrets_are_not_for_another_server_under_the_same_id(edge, url):
    """It would get jobs signed as for the other one, and could pass them on to it."""
    said = {**CARD, "worker_id": "w", "url": "http://localhost/jobs"}
    assert (await edge.call("POST", "/v1/workers", {**said, "secrets": ["whsec_" + "A" * 32]})).status == 201
    assert (await edge.call("POST", "/v1/workers", {**said, "url": url})).status == 201
    (worker,) = edge.workers.list()
    assert (worker.url, worker.secrets) == (url, ())


AT_MS = 1_800_000_000_000  # 2027-01-15T08:00:00Z


@pytest.mark.parametrize(
    ("seen", "more", "state", "why"),
    [
        (WELL, {}, "ok", None),
        (WELL, {"trouble": "16 threads are stuck"}, "trouble", "16 threads are stuck"),
        (WorkerHealth("ok", AT_MS, "answers 404: deploy it"), {}, "trouble", "answers 404: deploy it"),
        (
            WorkerHealth("unreachable", AT_MS, why="ECONNREFUSED", until_ms=AT_MS + 9),
            {},
            "unreachable",
            "cannot be reached since 2027-01-15T08:00:00.000Z: ECONNREFUSED",
        ),
        (
            WorkerHealth("backed_off", AT_MS, why="status: the worker answered 429", until_ms=AT_MS + 900_000),
            {},
            "backed_off",
            "gets no jobs until 2027-01-15T08:15:00.000Z: status: the worker answered 429",
        ),
        (
            WorkerHealth("backed_off", AT_MS, why="status: the worker answered 429", until_ms=AT_MS + 30_000),
            {},
            "backed_off",
            "gets only one job at first, as a probe: status: the worker answered 429",
        ),
        (WELL, {"url": None}, "silent", "was last seen at 2027-01-15T08:00:00.000Z"),
    ],
)
async def test_how_a_worker_is_stands_first_and_what_waits_for_it_says_so(seen, more, state, why):
    edge = await Whole().begin()
    card = {name: value for name, value in {**CARD, "worker_id": "w", **more}.items() if value is not None}
    assert (await edge.call("POST", "/v1/workers", card)).status == 201
    edge.control.views["w"] = seen
    edge.clock.advance(600)
    (row,) = (await edge.call("GET", "/v1/workers", accept=JSON)).body["workers"]
    assert (row["state"], row["why"]) == (state, why)
    job_id = await edge.push(priority=3)
    (of_type,) = (await edge.call("GET", "/v1/types", accept=JSON)).body["types"]
    job = (await edge.call("GET", f"/v1/jobs/{job_id}", accept=JSON)).body
    waits = f"worker mailer {why}" if state in ("unreachable", "backed_off", "silent") else None
    assert (of_type["note"], job.get("note")) == (waits, waits)
    assert of_type["workers"] == (0 if state == "silent" else 1)
    why_it_waits = (await edge.call("GET", f"/v1/jobs/{job_id}/why", accept=JSON)).body
    if waits:
        assert why_it_waits["reason"] == "workers_down"
        assert why_it_waits["workers"] == [{"name": "mailer", "state": state, "why": why}]
    told = {**card, "worker_id": "v", "name": "other", "url": "http://127.0.0.1:1/", "priority_min": 5}
    assert (await edge.call("POST", "/v1/workers", told)).status == 201
    assert (await edge.call("GET", "/v1/types", accept=JSON)).body["types"][0]["note"] is None
    assert (await edge.call("GET", f"/v1/jobs/{job_id}", accept=JSON)).body.get("note") == waits, (
        "that one takes others"
    )
    assert (await edge.call("DELETE", "/v1/workers/w")).status == 204
    note = (await edge.call("GET", f"/v1/jobs/{job_id}", accept=JSON)).body["note"]
    assert note == "no worker takes these jobs with priority 3: other takes 5 to 2147483647"


async def test_a_worker_that_repeats_itself_in_time_is_well_all_the_time_and_gone_at_its_ttl():
    """One whose slots are full does not ask: it takes jobs all the same, and nothing flaps."""
    edge = await Whole().begin()
    card = {**CARD, "worker_id": "w", "url": None, "ttl": 30, "heartbeat": 10}
    card = {name: value for name, value in card.items() if value is not None}
    for _ in range(3):
        assert (await edge.call("POST", "/v1/workers", card)).status in (200, 201)
        for _ in range(29):
            edge.clock.advance(1)
            (row,) = (await edge.call("GET", "/v1/workers", accept=JSON)).body["workers"]
            assert (row["state"], row["why"]) == ("ok", None)
    edge.clock.advance(2)
    assert (await edge.call("GET", "/v1/workers", accept=JSON)).body["workers"] == []
