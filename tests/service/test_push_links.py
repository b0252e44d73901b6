"""Places in groups and unique keys while the disk is slow, refuses, or a daemon dies."""

from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from jqd.chaining.links import Links
from jqd.domain.errors import Conflict, JournalRefused, NotYet, StoreAway
from jqd.domain.flow import unique_key
from jqd.domain.record import Lane, decode_cancels, decode_jobs
from jqd.features import HOOKS
from jqd.runner import WorkerRegistry
from jqd.service import ServiceConfig, Services, groups
from jqd.service.batch import read_array
from jqd.service.push import FSYNC, Ack, Pushed, push
from jqd.store import StoreConfig
from jqd.store.links import PLACE_S, Closing, UniqueWanted
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.api.fake_runner import FakeControl
from tests.api.fakes import FakeJournal


class Here:
    """A push, with a disk that the test holds up."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = FakeStore(self.clock)
        self.journal = FakeJournal(self.clock)
        journal: Any = self.journal
        control: Any = FakeControl(self.journal)
        runner: Any = None
        workers = WorkerRegistry(None, clock=self.clock)
        config = ServiceConfig()
        self.services = Services(config, journal, self.store, runner, workers, control, self.clock, HOOKS)

    async def push(self, ack: Ack = FSYNC, **job: Any) -> Pushed:
        array = msgspec.msgpack.encode([{"name": "mail", **job}])
        return await push(self.services, read_array(array, True, self.services.config), ack)

    def hold(self) -> trio.Event:
        self.journal.hold, self.journal.waiting = trio.Event(), trio.Event()
        return self.journal.hold


@pytest.fixture
async def here() -> Here:
    made = Here()
    await made.store.look(fresh=True)
    return made


@pytest.mark.parametrize("link", [{"unique": "k"}, {"group": "g"}])
async def test_a_job_in_memory_that_the_disk_refuses_leaves_no_place_and_no_key(
    here: Here, link: dict[str, str]
) -> None:
    """Later pushes would be acknowledged as its duplicates, and what waits for the group would wait for it."""
    release = here.hold()

    async def refused() -> None:
        with pytest.raises(JournalRefused):
            await here.push(Ack("memory"), **link)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(refused)
        await here.journal.waiting.wait()
        here.journal.refuse = JournalRefused("full", full=True)
        release.set()
    assert await here.store.close_group("g") == Closing(0, [])
    assert await here.store.reserve_unique([UniqueWanted(unique_key("mail", "k"), "t", "ended")]) == ["t"]


async def test_a_disk_that_refuses_leaves_no_place_and_no_key(here: Here) -> None:
    here.journal.refuse = JournalRefused("full", full=True)
    with pytest.raises(JournalRefused):
        await here.push(group="g")
    with pytest.raises(JournalRefused):
        await here.push(unique="k")
    assert await here.store.close_group("g") == Closing(0, [])
    assert await here.store.reserve_unique([UniqueWanted(unique_key("mail", "k"), "t", "ended")]) == ["t"]


async def test_who_finds_the_key_of_a_push_under_way_hears_what_became_of_it(here: Here) -> None:
    found: list[Pushed] = []

    async def again() -> None:
        found.append(await here.push(unique="k"))

    release = here.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(again)
        await here.journal.waiting.wait()
        nursery.start_soon(again)
        await trio.testing.wait_all_tasks_blocked()
        assert not found
        release.set()
    first, second = found
    assert (first.duplicates, second.duplicates) == ((), first.job_ids)
    assert first.job_ids == second.job_ids


async def test_a_key_of_a_push_that_is_refused_goes_to_the_next(here: Here) -> None:
    found: list[Pushed] = []

    async def first() -> None:
        with pytest.raises(JournalRefused):
            await here.push(unique="k")
        here.journal.refuse = here.journal.hold = None

    async def second() -> None:
        found.append(await here.push(unique="k"))

    release = here.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await here.journal.waiting.wait()
        nursery.start_soon(second)
        await trio.testing.wait_all_tasks_blocked()
        here.journal.refuse = JournalRefused("full", full=True)
        release.set()
    assert [one.duplicates for one in found] == [()]


async def test_a_key_is_given_back_where_the_answer_that_gave_it_is_lost(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lay under the token of nobody for UNIQUE_S, and each repetition was a 503."""
    reserve = here.store.reserve_unique

    async def lost(wanted: Any) -> list[str]:
        await reserve(wanted)
        raise StoreAway("it does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(here.store, "reserve_unique", lost)
        with pytest.raises(StoreAway):
            await here.push(unique="k")
    assert (await here.push(unique="k")).duplicates == ()


async def test_a_close_waits_for_what_is_being_pushed(here: Here) -> None:
    told: list[Any] = []

    async def close() -> None:
        then = msgspec.Raw(msgspec.msgpack.encode({"name": "sum"}))
        told.append(await groups.close(here.services, "g", then, None))

    release = here.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: here.push(group="g"))
        await here.journal.waiting.wait()
        nursery.start_soon(close)
        await trio.testing.wait_all_tasks_blocked()
        assert not told
        release.set()
    (member,), (then,) = (decode_jobs(body) for lane, _, body in here.journal.frames if lane in (1, Lane.CHANGES))
    assert then.flow is not None
    assert (then.name, then.flow.after) == ("group.g", (member.id,))


async def test_a_push_that_took_too_long_for_its_group_is_taken_back(here: Here) -> None:
    release = here.hold()

    async def late() -> None:
        with pytest.raises(NotYet, match="taken back"):
            await here.push(group="g")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(late)
        await here.journal.waiting.wait()
        here.clock.advance(PLACE_S + 1)
        assert await here.store.close_group("g") == Closing(0, [])
        release.set()
    (job,) = decode_jobs(here.journal.frames[0][2])
    assert here.journal.frames[-1][0] is Lane.CANCELS
    assert decode_cancels(here.journal.frames[-1][2]) == [job.id]
    assert await here.store.close_group("g") == Closing(0, [])


async def test_what_a_daemon_journaled_before_it_died_is_told_by_its_next_start(here: Here) -> None:
    """Killed behind the sync: nothing was confirmed, and nobody was told."""
    await here.push(group="g", unique="k")
    (job,) = decode_jobs(here.journal.frames[0][2])
    here.store.wipe()
    await here.store.look(fresh=True)
    await here.store.join_group("g", ["t"])
    await here.store.reserve_unique([UniqueWanted(unique_key("mail", "k"), "0", "ended")])
    here.clock.advance(PLACE_S + 1)
    await Links(0, here.store, 1).write_groups([job])
    await here.store.apply_jobs("f" * 32, 0, 1, [job])
    assert await here.store.close_group("g") == Closing(0, [job.id])
    assert await here.store.reserve_unique([UniqueWanted(unique_key("mail", "k"), "t", "ended")]) == [job.id]


async def test_who_is_told_of_a_repeat_that_his_job_is_taken_finds_it_in_its_group(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store was away when the first push had journaled it: it had a place that was given up in the end."""

    async def away(*_: Any) -> list[str]:
        raise StoreAway("it does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(here.store, "confirm_members", away)
        with pytest.raises(NotYet, match="could not confirm"):
            await here.push(job_id="a", group="g")
        with pytest.raises(StoreAway):
            await here.push(job_id="a", group="g")  # nobody knows whether it is a member
    assert (await here.push(job_id="a", group="g")).duplicates == ["a"]
    here.clock.advance(PLACE_S + 1)
    closing = await here.store.close_group("g")
    assert (closing.unconfirmed, len(closing.job_ids)) == (0, 1)
    assert (await here.push(job_id="a", group="g")).duplicates == ["a"], "it is a member, closed or not"


async def test_a_repeat_whose_group_was_closed_without_it_is_told_so(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: Any) -> list[str]:
        return []

    with monkeypatch.context() as patched:
        patched.setattr(here.store, "confirm_members", lost)
        await here.push(job_id="a", group="g")
    here.clock.advance(PLACE_S + 1)
    assert await here.store.close_group("g") == Closing(0, [])
    with pytest.raises(Conflict, match="closed without it"):
        await here.push(job_id="a", group="g")


async def test_a_job_that_is_in_the_journal_keeps_its_place_whatever_fails_behind_it(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its group was closed without it: it ran, and nothing waited for it."""

    async def away(*_: Any) -> list[Any]:
        raise StoreAway("it does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(here.store, "confirm_names", away)
        with pytest.raises(NotYet):
            await here.push(job_id="a", group="g")
    assert (await here.store.close_group("g")).unconfirmed == 1, "who closes it waits for that job"
    (job,) = decode_jobs(here.journal.frames[0][2])
    await Links(0, here.store, 1).write_groups([job])
    here.clock.advance(PLACE_S + 1)
    assert await here.store.close_group("g") == Closing(0, [job.id])


@pytest.mark.parametrize("said", [{"then": msgspec.Raw(b"\x81\xa4name\xa3sum")}, {"callback": "https://example.org/"}])
async def test_a_store_that_lost_all_learns_that_a_group_was_closed(here: Here, said: dict[str, Any]) -> None:
    """From what waits for it, in whatever order the journals of several daemons bring its members."""
    for _ in range(2):
        await here.push(group="g")
    await groups.close(here.services, "g", said.get("then"), None, said.get("callback"))
    frames = here.journal.frames
    jobs = [job for lane, _, body in frames if lane in (Lane.JOBS, Lane.CHANGES) for job in decode_jobs(body)]
    here.store.wipe()
    await here.store.look(fresh=True)
    links = Links(0, here.store, 1)
    assert [links.has_group_here(job) for job in jobs] == [True] * 3
    for job in reversed(jobs):
        await links.write_groups([job])
    group = await here.store.get_group("g")
    assert group is not None
    assert group.closed_at_ms > 0
    assert sorted(group.job_ids) == sorted(job.id for job in jobs[:2])
    with pytest.raises(Conflict, match="closed"):
        await here.push(group="g")


async def test_an_empty_group_is_closed_again_too(here: Here) -> None:
    await groups.close(here.services, "none", msgspec.Raw(b"\x81\xa4name\xa3sum"), None)
    (job,) = decode_jobs(here.journal.frames[-1][2])
    here.store.wipe()
    await here.store.look(fresh=True)
    await Links(0, here.store, 1).write_groups([job])
    with pytest.raises(Conflict, match="closed"):
        await here.push(group="none")


async def test_a_key_is_free_whose_job_was_deleted_before_the_push_had_confirmed_it(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The push is told that its job was taken, as it was; the next one of the key is no duplicate of it."""
    confirm = here.store.confirm_unique

    async def late(wanted: Any, written: Any = None) -> list[str]:
        (job,) = decode_jobs(here.journal.frames[-1][2])
        await here.store.apply_jobs(here.journal.journal_id, 0, here.journal.synced, [job])
        await here.store.apply_cancels(here.journal.journal_id, 0, 1, [job.id])
        await here.store.delete_dead([job.id])
        return await confirm(wanted, written)

    with monkeypatch.context() as patched:
        patched.setattr(here.store, "confirm_unique", late)
        first = await here.push(unique="k")
    assert (first.duplicates, len(here.journal.frames)) == ((), 1)
    assert (await here.push(unique="k")).duplicates == ()


@pytest.mark.parametrize(
    "link", [{"unique": "k"}, {"group": "g"}, {"unique": "k", "group": "g"}, {"job_id": "mine", "group": "g"}]
)
async def test_a_store_that_hangs_costs_a_push_less_than_its_client_waits(
    autojump_clock: None, here: Here, monkeypatch: pytest.MonkeyPatch, link: dict[str, Any]
) -> None:
    """Clients wait ten seconds: after that they know neither that nothing was taken, nor when to try again."""

    async def hangs(*_: object) -> None:
        await trio.sleep(StoreConfig().timeout_s)
        raise StoreAway("no answer")

    hanging = ("confirm_unique", "confirm_members", "free_names", "join_group" if "group" in link else "reserve_unique")
    for name in hanging:
        monkeypatch.setattr(here.store, name, hangs)
    began_s = trio.current_time()
    with pytest.raises(StoreAway):
        await here.push(**link)
    assert trio.current_time() - began_s < 8.0
