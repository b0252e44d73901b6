"""A daemon that does not know of loose jobs sits beside one that does, or sat there between two of them."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from jqd.store import Ages, Owner, StoreConfig
from jqd.store.scripts import Script
from jqd.testing import store as fakes
from jqd.testing.store import FakeStore
from jqd.words.clock import ManualClock
from jqd.words.job import ChangeKind, Fate, Held, Job, State
from tests.contract.bench import StoreBench, changed, ids, outcome
from tests.contract.limited import KEYED, claim, item, rule

UNKNOWN = {  # what makes scripts of ours those of a daemon that does not know of loose jobs
    "redis.call('ZSCORE', keyed.loose_key(queue), head_row(id, queue)) or nil": "nil",
    "note_knows(sysid, epoch, true)": "",
    "note_knows(sysid, epoch)\n": "\n",
    "may_loosen = redis.call('HEXISTS', K.life, 'loose') == 1": "may_loosen = false",
}
QUEUE = KEYED + item("r")
PASSED = 500  # rows that are wrong, dropped by one claim: choose.lua
AGES = Ages(1_000, 2**40, 0)


@contextmanager
def older(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Meanwhile all is done as an older daemon does it."""
    scripts, unmet = dict(fakes.SCRIPTS), set(UNKNOWN)
    for name, script in fakes.SCRIPTS.items():
        source = script.source
        for piece, its in UNKNOWN.items():
            unmet -= {piece} if piece in source else set()
            source = source.replace(piece, its)
        scripts[name] = Script(name, source)
    assert not unmet, "no script has what an older one lacks"
    with patch.context() as patched:
        patched.setattr(fakes, "SCRIPTS", scripts)
        yield


async def furnished() -> StoreBench:
    store = FakeStore(clock := ManualClock(), StoreConfig())
    await store.look(fresh=True)
    bench = StoreBench(store, clock)
    await rule(bench, "r", concurrency=1000)
    return bench


def loose(bench: StoreBench) -> bool:
    store = bench.store
    assert isinstance(store, FakeStore)
    return f"{store.keys['loose']}:mail".encode() in store.server.keyspace.keys


def in_doubt(bench: StoreBench) -> bool:
    store = bench.store
    assert isinstance(store, FakeStore)
    return b"doubt:mail" in store.server.keyspace.hkeys(store.keys["life"].encode())


async def _cancels(bench: StoreBench, old: Owner, job: Job) -> None:
    await bench.cancel(job.id)


async def _replaces(bench: StoreBench, old: Owner, job: Job) -> None:
    await bench.add(changed(job, 2, ChangeKind.REPLACE, queue=KEYED))


async def _edits(bench: StoreBench, old: Owner, job: Job) -> None:
    await bench.add(changed(job, 2, ChangeKind.EDIT, priority=5))


async def _holds(bench: StoreBench, old: Owner, job: Job) -> None:
    await bench.store.reassert(old, {job.id: old.epoch})


async def _hands_on(bench: StoreBench, old: Owner, job: Job) -> None:
    """It was held, and is given back."""
    await bench.store.reassert(old, {job.id: old.epoch})
    await bench.store.release_jobs(old, {job.id: old.epoch})


async def _ends(bench: StoreBench, old: Owner, job: Job) -> None:
    await bench.settle(outcome(Held(job, 3, 1), Fate.SUCCEEDED))


ACTS: dict[str, tuple[Callable[[StoreBench, Owner, Job], Awaitable[None]], State, int]] = {
    "cancels": (_cancels, State.CANCELLED, 0),
    "replaces": (_replaces, State.WAITING, 1),
    "edits": (_edits, State.WAITING, 1),
    "holds": (_holds, State.RUNNING, 0),
    "hands on": (_hands_on, State.WAITING, 1),
    "ends": (_ends, State.SUCCEEDED, 0),
}
"""What an older daemon may do to a job that is loose, how the job stands then, and how often it is to be claimed."""


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("since", ["sits beside", "just sat down", "left", "was alone"])
@pytest.mark.parametrize("ages", [None, AGES])
async def test_a_job_that_an_older_daemon_has_ended_or_moved_is_not_claimed_where_it_was_loose(
    act: str, since: str, ages: Ages | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await furnished()
    owner = await bench.join()
    job, other = await bench.push(queue=QUEUE), await bench.push(queue=QUEUE)
    assert loose(bench)
    does, state, times = ACTS[act]
    if since == "was alone":
        await bench.store.release_sysid(owner)
    with older(monkeypatch):
        old = await bench.join("old")
        await does(bench, old, job)
    if since in ("sits beside", "left"):
        await bench.store.renew_sysid(owner, through=True)
    if since in ("left", "was alone"):
        with older(monkeypatch):
            await bench.store.release_sysid(old)
        state, times = (State.WAITING, 1) if act == "holds" else (state, times)
    if since == "left":
        await bench.store.renew_sysid(owner, through=True)
    elif since == "was alone":
        owner = await bench.join()
    assert (await bench.view(job)).state is state
    held = [one for _ in range(3) for one in await claim(bench, owner, ages=ages)]
    assert sorted(ids(held)) == sorted([job.id] * times + [other.id])
    assert not loose(bench)
    await bench.push(queue=QUEUE)
    if since in ("left", "was alone"):
        assert loose(bench), "all know of it again"
        assert len(await claim(bench, owner, ages=ages)) == 1
        assert not in_doubt(bench)


async def test_many_rows_that_are_wrong_are_dropped_by_bounded_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = await furnished()
    owner = await bench.join()
    jobs = [await bench.push(queue=QUEUE) for _ in range(PASSED + 150)]
    with older(monkeypatch):
        await bench.join("old")
        await bench.cancel(*(job.id for job in jobs[:-1]))
    first = await claim(bench, owner)
    assert (ids(first), first.more) == ([], True)
    assert ids(await claim(bench, owner)) == [jobs[-1].id]
    assert not loose(bench)
