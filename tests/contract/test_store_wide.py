"""10,000 children of one parent, 10,000 parents of one child: no call costs the server more than to apply jobs."""

import statistics

import pytest
import redis

from jqd.domain.flow import AFTER_MAX, BLOCKED_MS, Flow
from jqd.domain.job import Fate
from jqd.store import StoreConfig, open_store
from jqd.store.functions import shipped
from jqd.store.links import NEW, ParentNote, WatchPair
from jqd.testing.clock import ManualClock
from tests.contract.bench import StoreBench, outcome
from tests.valkey import Valkey

MANY = AFTER_MAX
STEP = 500
LINKS = ("take_links", "watch_parents", "note_parents", "drop_links", "list_links")


@pytest.mark.long
@pytest.mark.timeout(120)
async def test_no_call_takes_long_whatever_waits_for_whatever(fresh_valkey: Valkey) -> None:
    clock = ManualClock()
    config = StoreConfig(url=fresh_valkey.url)
    with redis.Redis.from_url(fresh_valkey.url) as server:
        async with open_store(config, now_ms=clock.wall_ms) as store:
            bench = StoreBench(store, clock)
            await store.look(fresh=True)
            parents = [bench.make() for _ in range(MANY)]
            wide = bench.make("sum", flow=Flow(after=tuple(one.id for one in parents)), eligible_at_ms=BLOCKED_MS)
            flow = Flow(after=(parents[0].id,))
            children = [bench.make("leaf", flow=flow, eligible_at_ms=BLOCKED_MS) for _ in range(MANY)]
            server.config_set("slowlog-log-slower-than", 1_000)
            server.config_set("slowlog-max-len", 100_000)
            server.slowlog_reset()
            for jobs in (parents, children):
                for at in range(0, MANY, STEP):
                    await bench.add(*jobs[at : at + STEP])
            await bench.add(wide)
            while blocked := (await store.take_links(100, 5.0)).blocked:
                notes = [ParentNote(one.job.id, size=NEW) for one in blocked]
                pairs = [WatchPair(o.job.id, "", p, "") for o in blocked for p in (o.job.flow or flow).after]
                await store.note_parents(notes)
                found = await store.watch_parents(pairs)
                told = zip(pairs, found, strict=True)
                await store.note_parents([ParentNote(pair.child, one.id, one.how or "") for pair, one in told])
                await store.note_parents([ParentNote(o.job.id, size=len((o.job.flow or flow).after)) for o in blocked])
                await store.drop_links({one.entry: () for one in blocked})
            for given, reach in (([wide.id], 99), ([children[0].id], 99), ([one.id for one in parents + children], 0)):
                await store.list_links(given, 200, 0, reach)
            owner = await bench.join()
            while held := await bench.claim(owner, limit=STEP):
                await bench.settle(*(outcome(one, Fate.SUCCEEDED) for one in held))
            done: set[str] = set()
            while ended := (await store.take_links(100, 5.0)).ended:
                notes = [ParentNote(child, one.id, one.how) for one in ended for child in one.children]
                done |= {child for child, stands in (await store.note_parents(notes)).items() if stands.is_done}
                await store.drop_links({one.entry: one.children for one in ended})
            assert done == {wide.id, *(child.id for child in children)}
            names = {shipped().function(name): name for name in shipped().flags}
            took: dict[str, list[int]] = {}
            for each in server.slowlog_get(100_000):
                called = bytes(each["command"]).split()[1].decode(errors="replace")
                took.setdefault(names.get(called, ""), []).append(each["duration"])
            usual = statistics.median(took["apply_jobs"])
            cost = {name: statistics.median(took[name]) for name in LINKS if name in took}
            assert max(cost.values(), default=0) < 2 * usual, (usual, cost)
