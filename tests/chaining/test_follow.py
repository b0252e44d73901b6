"""Followers are pushed once each: whoever does it, however often, and whatever stands in their way."""

from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from jqd.chaining.follow import follow
from jqd.chaining.outbox import UNREADABLE
from jqd.domain.errors import StoreAway
from jqd.domain.followers import FOLLOWERS_BYTES_MAX, FOLLOWERS_MAX, encode_as_outbox_entry, follower_id, items_of
from jqd.domain.job import Fate
from jqd.domain.tenant import annotate
from jqd.service.outcome_checks import wrong
from jqd.service.services import SHARE, PartitionBreaker
from jqd.store import NameWanted
from tests.api.whole import Whole

PARENT = "01K00000000000000000000000"
NOW_MS = 1_800_000_000_000


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


def services(edge: Whole) -> Any:
    return edge.api._parts.services


def packed(*jobs: dict[str, Any]) -> bytes:
    return msgspec.msgpack.encode(jobs)


def entry(*jobs: dict[str, Any], generation: int = 0, tenant: str = "") -> bytes:
    return (
        PARENT.encode()
        + b" "
        + encode_as_outbox_entry(items_of(packed(*jobs)), PARENT, annotate(tenant, "mail"), generation, NOW_MS)
    )


async def push(edge: Whole, *entries: bytes) -> dict[bytes, str]:
    left = await follow(services(edge), entries)
    await edge.apply()
    assert left.over == {}
    return left.waits


async def jobs(edge: Whole, tenant: str = "") -> dict[str, Any]:
    told = await edge.call("GET", "/v1/jobs", headers={"jqd-tenant": tenant} if tenant else None)
    return {job["job_id"]: job for job in told.body["jobs"]}


async def test_they_are_pushed_under_ids_of_their_place_and_again_they_are_the_same(edge: Whole) -> None:
    first = entry(
        {"name": "a", "argument": 1}, {"name": "b", "delay": 60, "tags": ["t"]}, {"name": "c", "job_id": "own"}
    )
    for _ in range(2):
        assert await push(edge, first) == {}
    found = await jobs(edge)
    assert {job_id: job["name"] for job_id, job in found.items()} == {
        f"{PARENT}.0": "a",
        f"{PARENT}.1": "b",
        "own": "c",
    }
    late = found[f"{PARENT}.1"]
    assert (late["eligible_at"], late["tags"]) == ("2027-01-15T08:01:00.000Z", ["t"]), "counted from the parent's end"
    assert await push(edge, entry({"name": "a", "argument": 1}, generation=77)) == {}
    assert follower_id(PARENT, 77, 0) in await jobs(edge), "its parent ran anew"


async def test_they_belong_to_the_tenant_of_their_parent(edge: Whole) -> None:
    both = entry({"name": "a"}, {"name": "c", "job_id": "own"}, tenant="acme"), entry({"name": "b"})
    for _ in range(2):
        assert await push(edge, *both) == {}
    assert sorted(await jobs(edge, tenant="acme")) == [f"{PARENT}.0", "own"]
    assert await jobs(edge, tenant="other") == {}
    found = await edge.whole.list_jobs(None, None, None, 10, "")
    assert sorted(job.jobtype for job in found.jobs) == [annotate("acme", "a"), annotate("acme", "c"), "b"]


async def test_what_another_attempt_told_is_a_repeat_and_an_own_id_that_is_taken_is_said(
    edge: Whole,
) -> None:
    await push(edge, entry({"name": "a"}, {"name": "c", "job_id": "own"}))
    with capture_logs() as lines:
        assert await push(edge, entry({"name": "other"}, {"name": "other", "job_id": "own"})) == {}
    assert {job["name"] for job in (await jobs(edge)).values()} == {"a", "c"}
    (said,) = [line for line in lines if line["event"] == "outbox.refused"]
    assert "another job stands under job_id 'own'" in said["why"]


async def test_what_two_attempts_told_is_one_job_also_while_the_first_is_on_its_way(edge: Whole) -> None:
    """Whatever they told: the journals of both pushers have it under one revision, the first stays."""
    first, other = entry({"name": "a", "argument": 1}), entry({"name": "b", "argument": 2})
    assert [(await follow(services(edge), [each])).waits for each in (first, other)] == [{}, {}]
    await edge.apply()
    assert [(job_id, job["name"]) for job_id, job in (await jobs(edge)).items()] == [(f"{PARENT}.0", "a")]
    assert await push(edge, other, first) == {}
    assert [job["name"] for job in (await jobs(edge)).values()] == ["a"]


async def test_an_id_that_is_only_promised_is_waited_for_and_holds_up_no_other(edge: Whole) -> None:
    wanted = NameWanted("own", edge.journal.ids.take(1).first, "other", False)
    await services(edge).store.reserve_names([wanted])
    held, free = entry({"name": "c", "job_id": "own"}), entry({"name": "a"})
    waits = await push(edge, held, free)
    assert list(waits) == [held]
    assert list(await jobs(edge)) == [f"{PARENT}.0"]
    edge.clock.advance(31)
    assert await push(edge, held) == {}, "nobody wrote it"
    assert "own" in await jobs(edge)


async def test_an_id_that_is_made_is_not_confirmed_and_reads_as_on_its_way_however_long_it_takes(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else may have it, and it comes in any case. One that is chosen another push may want."""
    confirm, confirmed = edge.whole.confirm_names, list[str]()

    async def note(rows: Any, *written: Any) -> Any:
        confirmed.extend(row.name for row in rows)
        return await confirm(rows, *written)

    monkeypatch.setattr(edge.whole, "confirm_names", note)
    both = entry({"name": "a"}, {"name": "c", "job_id": "own"})
    assert (await follow(services(edge), [both])).children[0][0] == PARENT
    assert confirmed == ["own"]
    edge.clock.advance(31)  # longer than a reservation
    told = [await edge.call("GET", f"/v1/jobs/{name}") for name in (f"{PARENT}.0", "own")]
    assert [(one.status, one.body.get("state")) for one in told] == [(200, "waiting")] * 2
    assert (await follow(services(edge), [both])).waits == {}, "pushed again, as by another daemon"
    await edge.apply()
    assert sorted(await jobs(edge)) == [f"{PARENT}.0", "own"]
    assert len(await edge.claim("a")) == 1


async def test_a_store_that_is_away_makes_them_wait_and_so_does_what_cannot_be_read(edge: Whole) -> None:
    edge.whole.away = "cable pulled"
    first, more = entry({"name": "a"}), entry({"name": "a", "more": True})
    odd = [b"\xff\xff", b"", b"a \x92\xa0\x90", b"a \x92\xa0\x91\x81\xa4name\xa1b", more]
    waits = (await follow(services(edge), [first, *odd])).waits
    assert waits.keys() == {first, *odd}
    assert "cable pulled" in waits[first]
    assert all(waits[entry].startswith(UNREADABLE) for entry in odd)
    assert "more" in waits[more]


async def test_a_server_that_hangs_is_not_waited_for_with_each_batch(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take 5 s of each hundred followers, of all tenants and for all other partitions."""
    tries = 0

    async def hang(wanted: Any) -> Any:
        nonlocal tries
        tries += 1
        edge.clock.advance(5)
        raise StoreAway("no answer within 5 s")

    with monkeypatch.context() as patched:
        patched.setattr(services(edge).store, "reserve_names", hang)
        first = entry({"name": "a", "job_id": "own"})
        waits = [await push(edge, first) for _ in range(3)]
        assert tries == 1
        assert all(each[first].startswith("no answer within 5 s") for each in waits)
        edge.clock.advance(5 * SHARE - 1)
        await push(edge, first)
        edge.clock.advance(1)
        await push(edge, first)
        assert tries == 2
    edge.clock.advance(5 * SHARE)
    assert await push(edge, first) == {}
    assert "own" in await jobs(edge)


def test_only_who_needs_a_silent_partition_waits() -> None:
    silent, one, both = PartitionBreaker(), frozenset({1}), frozenset({0, 1})
    silent.note(one, "it hangs", took_s=5, now_s=10)
    assert [silent.why(homes, 11) for homes in (one, both, frozenset({0}))] == ["it hangs", "it hangs", None]
    silent.note(both, "one of them hangs", took_s=5, now_s=41)
    assert [silent.why(homes, 41) for homes in (one, both)] == [None, "one of them hangs"]
    silent.note(one, "gone", took_s=0, now_s=42)
    assert silent.why(one, 42) is None, "what fails at once takes nobody's time"


@pytest.mark.parametrize(
    ("follows", "why"),
    [
        (packed({"name": "a"}), ""),
        (packed(), "the array is empty"),
        (b"\x07", "no MessagePack"),
        (packed({"name": "a"}, {"name": "b", "priority": "high"}), "jobs/1/priority: "),
        (packed({"name": "a", "delay": 1, "run_at": 1}), "jobs/0/delay: run_at and delay exclude each other"),
        (packed({"name": "a", "job_id": "x"}, {"name": "b", "job_id": "x"}), "same job_id"),
        (packed({"name": "a"}, {"name": "b", "job_id": "x", "replace": True}), "jobs/1/replace: "),
        (
            packed({"name": "a", "callback": "http://169.254.1.1/x"}),
            "jobs/0/callback: the URL 'http://169.254.1.1/x' must",
        ),
        (packed({"name": "a", "then": {"name": "b", "callback": "http://169.254.1.1/x"}}), "jobs/0/callback: "),
        (packed(*[{"name": "a"}] * (FOLLOWERS_MAX + 1)), "at most 500"),
        (packed({"name": "a", "argument": bytes(FOLLOWERS_BYTES_MAX)}), "at most 1048576"),
    ],
)
async def test_what_cannot_be_pushed_is_refused_when_it_is_told(edge: Whole, follows: bytes, why: str) -> None:
    found = wrong(services(edge).config, services(edge).workers.why_no_callback, follows)
    assert (found == "") == (why == "")
    assert why in found


async def quota(edge: Whole, **limits: Any) -> None:
    assert (await edge.call("PUT", "/v1/quotas/acme", limits)).status == 200
    await edge.apply()


def family(parent: int, jobs: int, tenant: str = "acme") -> bytes:
    """What follows one of several parents."""
    name = f"01K0000000000000000000{parent:04}"
    its = encode_as_outbox_entry([{"name": "a"}] * jobs, name, annotate(tenant, "mail"), 0, NOW_MS)
    return name.encode() + b" " + its


async def test_a_quota_puts_them_off_and_they_come_in_their_order(edge: Whole) -> None:
    await quota(edge, queued=6)
    first, second, third, other = family(1, 6), family(2, 6), family(3, 1), family(4, 3, "other")
    left = await follow(services(edge), [first, second, third, other])
    await edge.apply()
    assert {tenant: over.entries for tenant, over in left.over.items()} == {"acme": [second, third]}
    assert "the quota of tenant 'acme' is spent, queued: 6 jobs" in left.over["acme"].why
    assert [len(await jobs(edge, tenant)) for tenant in ("acme", "other")] == [6, 3]
    await quota(edge, queued=1_000)
    told = await edge.call("POST", "/v1/jobs", {"name": "a"}, headers={"jqd-tenant": "acme"})
    assert (told.status, "wait for it and go first" in told.body["detail"]) == (429, True), "they were to have the room"
    await quota(edge, queued=6)
    edge.control.shelves["acme"] = 2
    assert (await follow(services(edge), [third])).over.keys() == {"acme"}, "others wait already"
    edge.clock.advance(10)
    for held in await edge.claim("acme\x1fa"):
        await edge.end(held, Fate.SUCCEEDED)
    edge.clock.advance(2)
    left = await follow(services(edge), [second, third], from_shelf=True)
    await edge.apply()
    assert len(await jobs(edge, "acme")) == 12
    assert {tenant: over.entries for tenant, over in left.over.items()} == {"acme": [third]}


@pytest.mark.parametrize("limits", [{"queued": 10}, {"in_flight": 10}, {"rate": 1}])
@pytest.mark.parametrize("size", [9, 10, 30])
async def test_those_of_one_parent_come_when_there_is_room_for_one_of_them(
    edge: Whole, limits: dict[str, int], size: int
) -> None:
    """Whatever their number: else 9 would wait behind 2 jobs with dates for as long as these, and 30 would not."""
    await quota(edge, **limits)
    dated = [{"name": "a", "delay": 86_400}] * 2
    assert (await edge.call("POST", "/v1/jobs", dated, headers={"jqd-tenant": "acme"})).status == 201
    await edge.apply()
    edge.clock.advance(2)
    for parent in (1, 2):
        left = await follow(services(edge), [family(parent, size)])
        await edge.apply()
        edge.clock.advance(2)
        assert (parent, [*left.over]) == (parent, ["acme"] if parent == 2 else [])
    assert len(await jobs(edge, "acme")) == 2 + size


async def test_what_is_pushed_again_costs_a_quota_nothing(edge: Whole) -> None:
    await quota(edge, rate=1)
    for _ in range(50):
        assert (await follow(services(edge), [family(1, 3)])).over == {}
        await edge.apply()
    edge.clock.advance(1)
    assert (await follow(services(edge), [family(2, 4)])).over == {}
    assert (await follow(services(edge), [family(3, 1)])).over.keys() == {"acme"}


@pytest.mark.parametrize("own", [PARENT, f"{PARENT}.0", f"{PARENT}.3.499", "idempotency-key.abc.1"])
async def test_nobody_takes_an_id_that_is_to_be_given_to_another_job(edge: Whole, own: str) -> None:
    """What follows would never come, for a job stands under its id, whoever pushed that."""
    for job in {"name": "a", "job_id": own}, [{"name": "a", "job_id": own}, {"name": "b"}]:
        told = await edge.call("POST", "/v1/jobs", job)
        assert (told.status, "jqd gives itself" in str(told.body)) == (422 if isinstance(job, dict) else 207, True)
    assert "jqd gives itself" in wrong(
        services(edge).config, services(edge).workers.why_no_callback, packed({"name": "a", "job_id": own})
    )
    await edge.apply()
    assert await push(edge, entry({"name": "next"})) == {}
    assert (await jobs(edge))[f"{PARENT}.0"]["name"] == "next"


@pytest.mark.parametrize("own", ["order-7.0", f"{PARENT}.0.0.0", f"{PARENT}.x", f"{PARENT}x.0", "idempotency-key"])
async def test_ids_that_only_look_alike_may_be_chosen(edge: Whole, own: str) -> None:
    assert (await edge.call("POST", "/v1/jobs", {"name": "a", "job_id": own})).status == 201


@pytest.mark.parametrize("is_closed", [False, True])
async def test_what_finds_no_place_in_its_group_is_no_member_in_its_journal_either(
    edge: Whole, monkeypatch: pytest.MonkeyPatch, is_closed: bool
) -> None:
    """It was ingested as one: a group with 10,001 could not be closed with a job that waits for it, ever."""
    monkeypatch.setattr("jqd.store.links.GROUP_MAX", 1)
    member = await edge.push(group="g")
    if is_closed:
        assert (await edge.call("POST", "/v1/groups/g/close", {})).status == 200
    first = entry({"name": "a", "group": "g", "argument": 1}, {"name": "b"})
    for _ in range(2):
        assert await push(edge, first) == {}
    found = await jobs(edge)
    assert [found[f"{PARENT}.{place}"].get("group") for place in range(2)] == [None, None]
    group = await edge.whole.get_group("g")
    assert group is not None
    assert group.job_ids == [member]
