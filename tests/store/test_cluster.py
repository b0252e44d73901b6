"""The store in a real Cluster of three masters and a copy: its slot moves, and its master dies, while daemons work."""

from collections.abc import Iterator
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path

import pytest

from jqd.domain.diagnostic import refusals
from jqd.domain.errors import StoreAway, StoreChanged
from jqd.domain.jobid import ALPHABET, ID_LENGTH
from jqd.store import PartitionedStore, StoreConfig, examine, open_store
from tests.store.ensemble import Cluster, Node, cluster, wait_until
from tests.store.traffic import traffic


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    """One Cluster for all; each test leaves it whole, but the last one."""
    with cluster() as nodes:
        yield nodes


async def test_the_store_is_followed_to_the_node_that_its_slot_moved_to(nodes: Cluster) -> None:
    async with open_store(StoreConfig(url=nodes.url)) as store:
        before = await store.look(fresh=True)
        owner = await store.reserve_sysid("d1", True, through=True)
        source, target = nodes.owner, next(node for node in nodes.masters if node is not nodes.owner)
        nodes.move_slot(source, target)
        with pytest.raises(StoreChanged, match="another node"):
            await store.applied("0" * 32)
        with pytest.raises(StoreChanged):
            await store.renew_sysid(owner, through=True)
        after = await store.look(fresh=False)
        assert before.settled
        assert not after.settled  # another server: all must come through the barrier
        renewed = await store.renew_sysid(owner, through=True)
        assert set(renewed.members) == {"d1"}  # the data came along
        nodes.move_slot(target, source)


async def test_the_doctor_looks_at_the_master_that_has_the_store(nodes: Cluster) -> None:
    config = StoreConfig(url=nodes.url)
    assert refusals(await examine(config)) == []
    nodes.owner.ask("CONFIG", "SET", "appendfsync", "no")  # of one node only
    assert [finding.code for finding in refusals(await examine(config))] == ["appendfsync_no"]
    nodes.owner.ask("CONFIG", "SET", "appendfsync", "everysec")


async def test_only_what_a_copy_has_too_counts_as_durable(nodes: Cluster) -> None:
    async with open_store(StoreConfig(url=nodes.url)) as store:
        await store.look(fresh=False)
        nodes.owner.ask("CONFIG", "SET", "appendfsync", "always")  # this server's own sync is not what is waited for
        assert await store.wait_durable()
        nodes.copy.pause()
        assert not await store.wait_durable(timeout_s=0.1)
        nodes.copy.go_on()
        assert await store.wait_durable()
        nodes.owner.ask("CONFIG", "SET", "appendfsync", "everysec")


async def test_partitions_lie_on_several_masters_and_wait_for_their_own_only(nodes: Cluster) -> None:
    config = StoreConfig(nodes.url, prefix="parts", partitions=3, timeout_s=0.3)
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(open_store(part)) for part in config.parts()]
        for store in stores:
            await store.look(fresh=True)
        for part in config.parts():
            assert refusals(await examine(part)) == []
        lie = {node: [n for n in range(3) if n in begun_on(node)] for node in nodes.masters}
        assert sorted(n for its in lie.values() for n in its) == list(range(3))
        gone = next(node for node in nodes.masters if lie[node] and node is not nodes.owner)  # that one has a copy
        assert len(lie[gone]) < 3
        for node in nodes.masters:
            node.ask("CONFIG", "SET", "cluster-require-full-coverage", "no")  # else all wait for one
        spread = PartitionedStore(stores, servers=1)
        gone.pause()
        try:
            assert (await spread.stats()).unreachable == tuple(lie[gone])
            for number in range(3):
                job_id = "0" * (ID_LENGTH - 1) + ALPHABET[number]
                with pytest.raises(StoreAway, match=f"partition {number}") if number in lie[gone] else nullcontext():
                    assert await spread.get_job(job_id) is None
        finally:
            gone.go_on()
        wait_until(lambda: all(nodes.is_ok(node) for node in nodes.nodes))
        assert (await spread.stats()).unreachable == ()
        for node in nodes.masters:
            node.ask("CONFIG", "SET", "cluster-require-full-coverage", "yes")


def begun_on(node: Node) -> list[int]:
    """The partitions that this node keeps."""
    with node.client() as client:
        keys = client.keys("{parts:*}:life")
    return [int(bytes(key).partition(b":")[2].partition(b"}")[0]) for key in keys]


def test_a_master_dies_and_then_the_slot_moves_under_load(nodes: Cluster, tmp_path: Path) -> None:
    with traffic(nodes.url, tmp_path) as now:
        dead, heir = nodes.owner, nodes.copy
        dead.kill()
        wait_until(lambda: b"master" in heir.role())
        nodes.owner = heir
        now.wait_running()
        target = next(node for node in nodes.masters if node is not dead)
        nodes.move_slot(heir, target)
        now.wait_running()
        now.expect_nothing_lost()
