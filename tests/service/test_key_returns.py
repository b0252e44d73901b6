"""Unique keys of pushes and retries that came to nothing: they are free again, whatever the store's answers do."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio

from jqd.domain.errors import Denied, Invalid, JqdError, NotYet, Overtaken, StoreAway, StoreUnsettled
from jqd.domain.flow import unique_key
from jqd.domain.job import Fate
from jqd.service.edit import Kind, change
from jqd.service.key_returns import LATE_S, REPEAT_S, KeyReturns
from jqd.store import JobView, Store
from jqd.store.links import UniqueWanted
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.api.whole import Whole
from tests.service.test_push_links import Here

KEY = unique_key("mail", "k")


@pytest.fixture
async def store() -> FakeStore:
    made = FakeStore(ManualClock())
    await made.look(fresh=True)
    return made


class Hangs:
    """A server that does not answer; what it was asked it does later, or never."""

    def __init__(self, store: Any) -> None:
        self.store, self.asked = store, list[Callable[[], Awaitable[Any]]]()
        self._real = {name: getattr(store, name) for name in ("reserve_unique", "confirm_unique")}
        for name in self._real:
            setattr(store, name, partial(self._ask, name))

    async def _ask(self, name: str, wanted: Any) -> Any:
        await trio.lowlevel.checkpoint()
        self.asked.append(partial(self._real[name], wanted))
        raise StoreAway("no answer in 5 s")

    def wake(self) -> None:
        """Answer again from now on."""
        for name, real in self._real.items():
            setattr(self.store, name, real)


async def owner_of(store: Store) -> str:
    (owner,) = await store.reserve_unique([UniqueWanted(KEY, "zz", "ended")])
    return owner


@pytest.mark.parametrize("order", ["in order", "the give-back overtakes", "only the reservation"])
async def test_a_key_is_free_soon_after_the_store_hung(autojump_clock: None, nursery: trio.Nursery, order: str) -> None:
    """It was refused for ten minutes: the give-back was tried once, on the store that had just timed out."""
    here = Here()
    await here.store.look(fresh=True)
    returns = here.services.key_returns
    await nursery.start(returns.run, here.store, 0)
    server = Hangs(here.store)
    with pytest.raises(StoreAway):
        await here.push(unique="k")
    server.wake()
    asked = server.asked[:1] if order == "only the reservation" else server.asked
    for ask in asked if order != "the give-back overtakes" else reversed(asked):
        await ask()
    await trio.sleep(2 * REPEAT_S)
    assert (await here.push(unique="k")).duplicates == ()
    await trio.sleep(LATE_S + 2 * REPEAT_S)
    assert len(returns._waiting) == 0


async def test_a_reservation_that_comes_late_is_given_back_though_the_give_back_was_answered(
    autojump_clock: None, nursery: trio.Nursery, store: FakeStore
) -> None:
    """It came over a connection that was closed, behind what went over a new one."""
    returns, wanted = KeyReturns(), UniqueWanted(KEY, "t", "ended")
    await nursery.start(returns.run, store, 0)
    await returns.give_back(store, 1, [wanted], unsure=[wanted])
    await trio.sleep(LATE_S - 3 * REPEAT_S)
    await store.reserve_unique([wanted])
    await trio.sleep(2 * REPEAT_S)
    assert await owner_of(store) == "zz"


async def test_what_was_answered_is_not_repeated(store: FakeStore) -> None:
    returns, wanted = KeyReturns(), UniqueWanted(KEY, "t", "ended")
    await store.reserve_unique([wanted])
    await returns.give_back(store, 1, [wanted])
    assert len(returns._waiting) == 0
    assert await owner_of(store) == "zz"


async def test_a_store_that_is_away_for_long_costs_no_more_than_so_many_keys(
    monkeypatch: pytest.MonkeyPatch, store: FakeStore
) -> None:
    monkeypatch.setattr("jqd.service.key_returns.KEYS_MAX", 3)
    Hangs(store)
    returns = KeyReturns()
    for number in range(5):
        await returns.give_back(store, 1, [UniqueWanted(KEY, str(number), "ended")])
    assert len(returns._waiting) == 3


# ------------------------------------------------------------ retries


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


async def expect_free(edge: Whole) -> None:
    told = await edge.call("POST", "/v1/jobs", {"name": "mail", "unique": "k"})
    assert told.status == 201, told.body


FAILS = (StoreAway("no"), StoreUnsettled("no"), Invalid("no"), Denied("no"), NotYet("no"), Overtaken("no"))


@pytest.mark.parametrize(
    "error", [*FAILS, trio.Cancelled], ids=lambda one: getattr(one, "__name__", type(one).__name__)
)
async def test_a_retry_that_fails_before_it_is_journaled_gives_its_key_back(
    edge: Whole, monkeypatch: pytest.MonkeyPatch, error: JqdError | None
) -> None:
    """Only three errors did: each push of the key was a 503 for ten minutes."""
    job = await edge.ended(Fate.DEAD, unique="k")
    came = trio.Event()

    async def fails(*_: Any) -> Any:
        came.set()
        await trio.lowlevel.checkpoint()
        if error is not None:
            raise error
        await trio.sleep_forever()

    with monkeypatch.context() as patched:
        patched.setattr(edge.whole, "reserve_edit", fails)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(edge.call, "POST", f"/v1/jobs/{job}/retry")
            await came.wait()
            if error is None:
                nursery.cancel_scope.cancel()
    await expect_free(edge)


async def test_a_retry_that_hears_no_answer_gives_its_key_back(
    edge: Whole, autojump_clock: None, nursery: trio.Nursery
) -> None:
    job = await edge.ended(Fate.DEAD, unique="k")
    await nursery.start(edge.api._parts.services.key_returns.run, edge.whole, 0)
    server = Hangs(edge.whole)
    assert (await edge.call("POST", f"/v1/jobs/{job}/retry")).status == 503
    server.wake()
    await server.asked[0]()
    await trio.sleep(2 * REPEAT_S)
    await expect_free(edge)


async def test_a_retry_that_fails_leaves_the_key_of_one_that_is_journaled(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both had reserved it under the job's id, so the second gave back what the first had got."""
    job = await edge.ended(Fate.DEAD, unique="k")
    edge.apply_fails = True
    assert (await edge.call("POST", f"/v1/jobs/{job}/retry")).status == 503, "it is in the journal"

    async def away(*_: Any) -> Any:
        await trio.lowlevel.checkpoint()
        raise StoreAway("no answer in 5 s")

    with monkeypatch.context() as patched:
        patched.setattr(edge.whole, "reserve_edit", away)
        assert (await edge.call("POST", f"/v1/jobs/{job}/retry")).status == 503
    assert (await owner_of(edge.whole)).startswith("~")
    edge.apply_fails = False
    await edge.apply()
    assert await owner_of(edge.whole) == job


async def test_a_retry_of_a_stale_look_leaves_the_key_of_the_job_that_lives(edge: Whole) -> None:
    """Somebody else had retried it meanwhile: it lived on without its key, and a second one began."""
    job = await edge.ended(Fate.DEAD, unique="k")
    view = await edge.whole.get_job(job)
    assert isinstance(view, JobView)
    assert (await edge.call("POST", f"/v1/jobs/{job}/retry")).status == 200
    with pytest.raises(JqdError):
        await change(edge.api._parts.services, view, Kind.RETRY)
    assert await owner_of(edge.whole) == job


async def test_a_key_that_another_push_has_is_not_given_back_again_and_again(autojump_clock: None) -> None:
    """A hundred such pushes a second kept what had to be repeated from being repeated."""
    here = Here()
    await here.store.look(fresh=True)
    await here.store.reserve_unique([UniqueWanted(KEY, "another", "ended")])
    with pytest.raises(NotYet, match="under way"):
        await here.push(unique="k")
    assert len(here.services.key_returns._waiting) == 0, "each time it was answered"
    assert await owner_of(here.store) == "~another"
