"""Word of a cancel comes with the renewals of whoever holds the job, whichever daemon took it."""

import pytest
import trio

from jqd.domain.errors import StoreAway
from jqd.domain.job import Job
from jqd.store import Owner, Renewed
from tests.loops.house import house, offer, until


async def test_a_cancel_that_another_daemon_took_reaches_the_one_that_holds_the_job(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        here.runner.offers = {"a": offer()}
        await here.add(Job("1", "a"), Job("2", "a"), Job("3", "b"))
        await here.join(nursery)
        await nursery.start(here.dispatch.run)
        await until(lambda: len(here.started) == 2)
        await here.store.apply_cancels("cd" * 16, 0, 1, ["2", "3"])
        await until(lambda: here.runner.cancelled)
        assert here.runner.cancelled == ["2"], "nobody holds the other"
        await trio.sleep(3 * here.membership.config.renew_s)
        assert here.runner.cancelled == ["2"], "it is told once"
        nursery.cancel_scope.cancel()


async def test_who_cannot_wait_for_the_next_renewal_hurries(autojump_clock: None) -> None:
    async with house(sole=True) as here, trio.open_nursery() as nursery:
        here.runner.offers = {"a": offer()}
        await here.add(Job("1", "a"))
        await here.join(nursery)
        await nursery.start(here.dispatch.run)
        await until(lambda: here.started)
        await trio.sleep(2 * here.membership.config.renew_s)
        await here.store.apply_cancels("cd" * 16, 0, 1, ["1"])
        asked_s = trio.current_time()
        here.membership.hurry()
        await until(lambda: here.runner.cancelled)
        assert trio.current_time() - asked_s < here.membership.config.renew_s / 4
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("met", ["by the barrier", "while the seat was in doubt"])
async def test_a_cancel_is_told_also_when_the_renewal_that_brings_it_only_proves_the_seat(
    autojump_clock: None, met: str
) -> None:
    """The store tells it once."""
    async with house() as here, trio.open_nursery() as nursery:
        here.runner.offers = {"a": offer()}
        await here.add(Job("1", "a"))
        await here.join(nursery)
        await nursery.start(here.dispatch.run)
        await until(lambda: here.started)
        await trio.sleep(2 * here.membership.config.renew_s + 0.1)  # between two renewals
        await here.store.apply_cancels("cd" * 16, 0, 1, ["1"])
        if met == "by the barrier":
            here.membership.disturbed()
        else:
            renew = here.store.renew_sysid

            async def disturbs(owner: Owner, **says: bool) -> Renewed:
                here.store.renew_sysid = renew  # type: ignore[method-assign]
                answer = await renew(owner, **says)
                here.membership.disturbed()
                return answer

            here.store.renew_sysid = disturbs  # type: ignore[method-assign]
        with trio.fail_after(30):
            await until(lambda: here.runner.cancelled)
        assert here.runner.cancelled == ["1"]
        nursery.cancel_scope.cancel()


async def test_a_cancel_is_told_again_when_the_answer_that_told_it_was_lost(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        here.runner.offers = {"a": offer()}
        await here.add(Job("1", "a"))
        await here.join(nursery)
        await nursery.start(here.dispatch.run)
        await until(lambda: here.started)
        call, lost = here.store.client.call, [StoreAway("the answer was lost")]

        async def loses(name: str, *arguments: object) -> object:
            answer = await call(name, *arguments)
            if name == "renew_sysid" and lost:
                raise lost.pop()
            return answer

        here.store.client.call = loses  # type: ignore[method-assign]
        await here.store.apply_cancels("cd" * 16, 0, 1, ["1"])
        await trio.sleep(5 * here.membership.config.renew_s)
        assert here.runner.cancelled == ["1"]
        asked = here.store.keys["asked"].encode()
        assert not [key for key in here.store.server.keyspace.keys if key.startswith(asked)], "nothing is left of it"
        nursery.cancel_scope.cancel()
