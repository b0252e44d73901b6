"""Random walks done on the fake and on a real server side by side: every answer must be the same.

On the way the real store is looked at from outside: every job lies in exactly one place. Every other walk is done with
pages of three jobs.
Long form: pytest tests/contract -k agree --store-walks 1000 (half a second each).
"""

from contextlib import nullcontext
from pathlib import Path

import redis

from jqd.store import StoreConfig, open_store
from jqd.store.keys import Keys
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.contract.walk import Walk, check
from tests.store.counting import of_fake, of_server
from tests.store.places import short_pages
from tests.valkey import Valkey

STEPS = 120


async def test_fake_and_real_agree(real_server: Valkey, seed: int, tmp_path: Path) -> None:
    with short_pages(tmp_path) if seed % 2 else nullcontext():
        await walk(real_server, seed)


async def walk(real_server: Valkey, seed: int) -> None:
    """One seed on both."""
    clock = ManualClock()
    config = StoreConfig(url=real_server.url, history_max=2, ended_keep_jobs=12, result_ttl_s=9, tombstone_keep_s=30)
    async with open_store(config, now_ms=clock.wall_ms) as real:
        fake = FakeStore(clock, config)
        with redis.Redis.from_url(real_server.url) as client:

            def wipe() -> None:
                client.flushall()
                fake.wipe()

            one = Walk(seed, real, fake, clock, wipe)
            recounts = of_fake(fake), of_server(client)
            recounts[0].watch(fake)
            await one.look()
            for step in range(STEPS):
                await one.step()
                if step % 10 == 0:
                    check(client, Keys(config.prefix))
                    recounts[1].check(f"step {step}")
            check(client, Keys(config.prefix))
            await one.compare()
