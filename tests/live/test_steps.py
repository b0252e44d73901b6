"""Chains, groups and what waits for them, written as calls, run by a real worker."""

import anyio
import pytest

import jqd
from jqd import after, chain, group
from jqd.client import Client, JobFailed
from tests.live.flowing import double, fragile, increase, show, total
from tests.live.harness import Daemon

pytestmark = pytest.mark.usefixtures("flowing_worker")

WAIT = "30s"


def test_a_chain_of_three_hands_on_each_result(shared_daemon: Daemon) -> None:
    with Client(shared_daemon.url) as client:
        ref = chain(double.s(1), double.s(), show.s()).push(client)
        assert ref.result(WAIT) == 4
        assert [client.get(each).state for each in ref.job_ids] == ["succeeded"] * 3
        assert ref.job_id == ref.job_ids[-1]


@pytest.mark.parametrize("steps", [50, pytest.param(1_000, marks=pytest.mark.long)])
def test_a_chain_has_as_many_steps_as_it_likes(shared_daemon: Daemon, steps: int) -> None:
    with Client(shared_daemon.url) as client:
        all_steps = chain(increase.s(0), *[increase.s() for _ in range(steps - 2)]).then(double.s())
        assert all_steps.push(client).result("5m") == 2 * (steps - 1)


def test_a_hundred_side_by_side_and_what_makes_one_of_them(shared_daemon: Daemon) -> None:
    with Client(shared_daemon.url) as client:
        ref = group(*(double.s(n) for n in range(100))).then(total.s()).push(client)
        assert ref.result(WAIT) == 2 * sum(range(100))
        assert group(double.s(1), double.s(2)).push(client).result(WAIT) == [2, 4]


def test_chains_and_groups_in_each_other(shared_daemon: Daemon) -> None:
    with Client(shared_daemon.url) as client:
        fan = group(double.s(), chain(double.s(), double.s())).then(total.s())
        assert chain(double.s(1), fan, double.s()).push(client).result(WAIT) == 2 * (4 + 8)
        pushed = group(double.s(1), double.s(2)).push(client)
        assert after(*pushed.last, client.push("double", {"number": 3})).then(total.s()).push(client).result(WAIT) == 12
        whole = chain(double.s(1), double.s(5))
        assert whole.push(client).result(WAIT) == 10, "what is whole gets no result"


@pytest.mark.parametrize(
    ("policy", "state"), [("run", "succeeded"), ("cancel", "cancelled"), ("fail", "failed"), (None, "failed")]
)
def test_what_a_failed_member_means_to_what_follows(
    shared_daemon: Daemon, policy: "jqd.domain.flow.OnFailure | None", state: str
) -> None:
    with Client(shared_daemon.url) as client:
        members = group(fragile.s(True), fragile.s(False))
        ref = members.then(show.s().set(on_parent_failure=policy)).push(client)
        (info,) = ref.wait(WAIT)
        assert info.state == state
        if state == "succeeded":
            assert ref.result() == ["well", None]
        else:
            with pytest.raises(JobFailed):
                ref.result()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_flow_is_awaited(shared_daemon: Daemon, backend: str) -> None:
    async def main(client: Client) -> None:
        ref = await chain(double.s(1), double.s()).apush(client)
        assert await ref == 4
        assert await ref.last[0] == 4
        assert await (await group(double.s(1), double.s(2)).apush(client)) == [2, 4]

    with Client(shared_daemon.url) as client:
        anyio.run(main, client, backend=backend)
