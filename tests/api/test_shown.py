"""Whatever is accepted can be shown, listed, changed, tried again and cancelled, in both languages, as what it was."""

import json
import math
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

import msgpack
import msgspec
import pytest
import trio
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jqd.domain import json_ext
from jqd.domain.dates import INSTANT_MS_MAX, ms_of
from jqd.domain.job import MAX_RETRY_MAX, PRIORITY_MAX, PRIORITY_MIN, TIMEOUT_S_MAX, Fate, State
from jqd.domain.job_spec import DELAY_S_MAX
from tests.api.edge import JSON, MSGPACK, Answer, Edge
from tests.api.whole import Whole
from tests.domain.test_json_ext import pack, packable, same

thorough = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

texts = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=6)
# Names that are part of a path, or look like one of ours.
ids = texts | st.sampled_from(
    [
        "cancel",
        "retry",
        "clean",
        "run-now",
        "result",
        "polling",
        "a/b",
        "/",
        "//",
        "%2F",
        "%",
        "?",
        "#x",
        "a b",
        "..a",
        "-",
    ]
)
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats()
dates = (
    st.datetimes(timezones=st.timezones() | st.just(UTC)).map(lambda date: date.isoformat())
    | st.sampled_from(["9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59.9999Z", "0001-01-01T00:00:00+14:00"])
    | st.floats(0, INSTANT_MS_MAX / 1000)
    | st.integers(0, INSTANT_MS_MAX // 1000)
    | numbers
)
delays = st.floats(0, DELAY_S_MAX) | numbers
priorities = st.integers(PRIORITY_MIN, PRIORITY_MAX) | st.sampled_from([PRIORITY_MIN, PRIORITY_MAX, 2**31, 2**64 - 1])
jobs = st.fixed_dictionaries(
    {"name": texts, "argument": packable},
    optional={
        "priority": priorities,
        "max_retry": st.integers(0, MAX_RETRY_MAX) | numbers,
        "timeout": st.floats(0.001, TIMEOUT_S_MAX) | numbers,
        "keep_result": st.booleans(),
        "job_id": ids,
        "replace": st.booleans(),
        "tags": st.lists(texts, max_size=3),
    },
)
when = st.fixed_dictionaries({}, optional={"run_at": dates, "delay": delays})
edits = st.fixed_dictionaries(
    {}, optional={"priority": priorities | numbers, "run_at": dates | st.none(), "delay": delays, "argument": packable}
)
JOB = {"name": "a", "argument": None}


class Asker:
    """Asks in both languages, and takes no error of ours for an answer."""

    def __init__(self, edge: Whole) -> None:
        self.edge = edge

    async def ask(self, method: str, path: str, value: Any = None, kind: str = MSGPACK) -> Any:
        """The same question twice if it changes nothing; the answers say the same."""
        body = None if value is None else written(value, kind)
        told = [await self._one(method, path, body, kind, MSGPACK)]
        if method == "GET":
            told.append(await self._one(method, path, body, kind, JSON))
            assert told[0].status == told[1].status
            assert same(told[0].raw, msgspec.msgpack.encode(json_ext.read(told[1].raw)))
        return told[0]

    async def _one(self, method: str, path: str, body: bytes | None, kind: str, accept: str) -> Answer:
        told = await self.edge.call(method, path, body, kind=kind, accept=accept)
        assert 200 <= told.status < 500, (method, path, told.body)
        assert told.status in (200, 201, 202, 204, 207, 409, 422), (method, path, told.body)
        return told


def written(value: Any, kind: str) -> bytes:
    """A body whose arguments are any MessagePack; in JSON with what JSON cannot say in forms."""
    return pack(value) if kind == MSGPACK else json.dumps(_in_json(value)).encode()


def _in_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_in_json(job) for job in value]
    return {
        name: json_ext.show_packed(pack(field)) if name == "argument" else _in_words(field)
        for name, field in value.items()
    }


def _in_words(value: Any) -> Any:
    """JSON has no such number: it is refused as text is."""
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def date_of(shown: str | None) -> int:
    return 0 if shown is None else ms_of(datetime.fromisoformat(shown))


async def _follow(pushed: list[dict[str, Any]], edit: dict[str, Any], kind: str) -> None:
    edge = await Whole().begin()
    asker = Asker(edge)
    told = await asker.ask("POST", "/v1/jobs", pushed, kind)
    await edge.apply()
    if told.status not in (201, 207):
        assert edge.journal.frames == []
        return
    for job_id, sent in zip(told.body["job_ids"], pushed, strict=True):
        if job_id is not None:
            await _look(asker, job_id, sent)
    await _list(asker, [job_id for job_id in told.body["job_ids"] if job_id is not None])
    for job_id, sent in zip(told.body["job_ids"], pushed, strict=True):
        if job_id is not None:
            await _change(asker, job_id, sent, edit, kind)


async def _look(asker: Asker, job_id: str, sent: dict[str, Any]) -> None:
    edge = asker.edge
    told = told_of(await asker.ask("GET", f"/v1/jobs/{quote(job_id, safe='')}"))
    assert same(told["argument"], pack(sent["argument"]))
    assert told["job_id"] == job_id == sent.get("job_id", job_id)
    assert (told["name"], told["priority"], told["max_retry"]) == (
        sent["name"],
        sent.get("priority", 0),
        sent.get("max_retry", 5),
    )
    assert told["tags"] == list(sent.get("tags", ()))
    (job,) = [job for job in edge.journal.jobs() if job_id in (job.name, job.id)]
    assert date_of(told["eligible_at"]) == job.eligible_at_ms
    assert same(job.argument, pack(sent["argument"]))
    assert (await asker.ask("GET", f"/job/{told.get('id', job_id)}")).body["status"] == "queued", "in LightJQ's words"


async def _list(asker: Asker, job_ids: list[str]) -> None:
    told = (await asker.ask("GET", "/v1/jobs")).body
    assert sorted(job["job_id"] for job in told["jobs"]) == sorted(job_ids)
    for job in told["jobs"]:
        for query in ({"name": job["name"]}, {"state": job["state"]}, *({"tag": tag} for tag in job["tags"])):
            rows = (await asker.ask("GET", f"/v1/jobs?{urlencode(query)}")).body["jobs"]
            assert job["job_id"] in [row["job_id"] for row in rows], query
    await asker.ask("GET", "/v1/types")


async def _change(asker: Asker, job_id: str, sent: dict[str, Any], edit: dict[str, Any], kind: str) -> None:
    edge, path = asker.edge, f"/v1/jobs/{quote(job_id, safe='')}"
    changed = await asker.ask("PATCH", path, edit, kind)
    argument = edit.get("argument", sent["argument"]) if changed.status == 200 else sent["argument"]
    shown = told_of(await asker.ask("GET", path))
    if changed.status == 200 and "priority" in edit:
        assert shown["priority"] == edit["priority"]
    assert (await asker.ask("POST", f"{path}/run-now")).status == 200
    held = [each for each in await edge.claim(sent["name"]) if job_id in (each.job.name, each.job.id)]
    # A worker gets what was pushed last, and says the same again as its result and as its error.
    for each in held:
        assert same(each.job.argument, pack(argument))
        packed = each.job.argument
        await edge.end(each, Fate.FAILED, error=packed, message="no", result=packed, keep_result=True)
        told = await asker.ask("GET", path)
        assert same(msgpack_of(told, "error"), packed)
        assert (await asker.ask("POST", f"{path}/retry")).status == 200
    assert (await asker.ask("DELETE", path)).status in (202, 204)
    state = msgpack_of(await asker.ask("GET", path), "state")  # beside it stands the error of the attempt, any value
    assert msgspec.msgpack.decode(state) in ("cancelled", "running")
    await asker.ask("GET", f"{path}/result")
    await asker.ask("DELETE", f"{path}?purge=1")


def msgpack_of(told: Answer, name: str) -> bytes:
    """One member of an answer, undecoded."""
    return bytes(msgspec.msgpack.decode(told.raw, type=dict[str, msgspec.Raw])[name])


def told_of(told: Answer) -> dict[str, Any]:
    """What is told of a job, its argument undecoded: that may be anything."""
    fields = msgspec.msgpack.decode(told.raw, type=dict[str, msgspec.Raw])
    return {
        name: bytes(value) if name == "argument" else msgspec.msgpack.decode(value) for name, value in fields.items()
    }


@thorough
@given(st.lists(st.tuples(jobs, when), min_size=1, max_size=4), edits, st.sampled_from([MSGPACK, JSON]))
@example([(JOB, {"run_at": "9999-12-31T23:59:59-23:59"})], {}, JSON)
@example([(JOB, {"run_at": 253402300799.9999})], {"run_at": 2**64}, MSGPACK)
@example([(JOB, {})], {"priority": 2**64}, JSON)
@example([(JOB, {})], {"run_at": 2**64}, JSON)
@example([({"name": "a", "argument": {"$bytes": "eA=="}}, {})], {"argument": {"$msgpack": "gQEC"}}, JSON)
@example([({"name": "a", "argument": [{msgpack.ExtType(0, b""): None}]}, {})], {}, MSGPACK)
@example([({**JOB, "job_id": "cancel"}, {}), ({**JOB, "job_id": "a/../b"}, {})], {}, MSGPACK)
def test_what_is_accepted_can_be_shown(pushed, edit, kind):
    # Each of a type of its own, so that a claim is a claim of one.
    told = [{**job, **date, "name": f"{job['name']}{number}"} for number, (job, date) in enumerate(pushed)]
    trio.run(_follow, told, edit, kind)


async def test_a_date_that_a_daemon_of_before_took_breaks_no_list():
    edge = Edge()
    job_id = edge.add(State.SCHEDULED, eligible_at_ms=INSTANT_MS_MAX + 86_400_000)
    for told in (await edge.call("GET", "/v1/jobs"), await edge.call("GET", f"/v1/jobs/{job_id}")):
        assert told.status == 200
        assert b"9999-12-31T23:59:59.999Z" in told.raw


@pytest.mark.parametrize("fields", [{}, {"job_id": "mine"}], ids=["its id", "an own id"])
async def test_a_client_that_looks_behind_its_push_sees_the_whole_job(fields: dict[str, str]) -> None:
    edge = await Whole().begin()
    told = await edge.call("POST", "/v1/jobs", {"name": "mail", "priority": 3, **fields})
    seen = (await edge.call("GET", f"/v1/jobs/{told.body['job_id']}")).body
    assert (seen["name"], seen["priority"], seen["state"]) == ("mail", 3, "waiting")
    edge.apply_fails = True
    told = await edge.call("POST", "/v1/jobs", {"name": "mail"})
    seen = await edge.call("GET", f"/v1/jobs/{told.body['job_id']}")
    assert (seen.status, seen.body["state"]) == (200, "waiting"), "not in the store yet, where that is behind"
