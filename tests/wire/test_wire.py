"""No bytes end a daemon or a worker, or leave anything behind: the short form. The long one: `python -m tests.wire`."""

import random
import resource
from collections.abc import Iterator
from contextlib import suppress

import pytest
import trio

from bench.crowd import BEGUN, HOST
from tests.directories import short_directory
from tests.live.harness import Daemon
from tests.wire.attack import Target, parse, send_corpus, send_mutations, talk, targets
from tests.wire.corpus import DAEMON
from tests.wire.leave import leave

TIMES = 8  # what came in 2 % of tries before, is seen in a seventh of runs; in the long form surely
ROUNDS = 40
SEED = 9
FILES = 256  # that a daemon may open


@pytest.fixture(scope="module")
def listening() -> Iterator[list[Target]]:
    with targets() as both:
        yield both


@pytest.mark.parametrize("which", [0, 1], ids=["daemon", "worker"])
async def test_no_bytes_end_it(listening: list[Target], which: int) -> None:
    target = listening[which]
    await target.begin()
    await send_corpus(target, TIMES)
    await target.rests()
    if target.cases is DAEMON:
        assert not target.unheard
        await target.holds()


@pytest.mark.parametrize("which", [0, 1], ids=["daemon", "worker"])
async def test_no_mutation_does(listening: list[Target], which: int) -> None:
    target = listening[which]
    await target.begin()
    await send_mutations(target, ROUNDS, random.Random(SEED))
    await target.rests()
    if target.cases is DAEMON:
        await target.holds()


async def test_what_is_said_of_them_holds_no_byte_of_a_request(listening: list[Target]) -> None:
    target = listening[0]
    secret = b"kaboom-8472"
    data, _ = await talk(
        target.port,
        [b"GET /x HTTP/1.1\r\nHost: localhost\r\nAuthorization: %b\r\nBad %b\r\n\r\n" % (secret, secret)],
        "wait",
    )
    assert [answer.status for answer in parse(data)[0]] == [400]
    assert secret not in data
    assert secret.decode() not in target.process.log.read_text()
    assert "Traceback" not in target.process.log.read_text()


async def test_who_leaves_at_any_byte_of_any_call_leaves_nothing_behind() -> None:
    with short_directory() as base, Daemon(base / "d", guarded=True) as daemon:
        target = Target("daemon", daemon, int(daemon.url.rpartition(":")[2]), DAEMON, steps=daemon.steps)
        await target.begin()
        await leave(target, random.Random(SEED))


async def test_silent_and_slow_connections_take_nothing_from_jobs() -> None:
    """More of them than the process may open files: they used to take the last one, and the daemon ended.

    Slow heads, bodies and readers come from an address of their own, and stay until the end: a stop waits for none.
    """
    with short_directory() as base:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))
        try:
            daemon = Daemon(base / "d")  # it inherits the limit
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with daemon:
            target = Target("daemon", daemon, int(daemon.url.rpartition(":")[2]), DAEMON)
            silent = [await trio.open_tcp_stream("127.0.0.1", target.port) for _ in range(2 * FILES)]
            slow = [await trio.open_tcp_stream("127.0.0.1", target.port, local_address=HOST) for _ in range(FILES)]
            for number, stream in enumerate(slow):
                with suppress(trio.BrokenResourceError):  # it had to give way, or was turned away
                    await stream.send_all(BEGUN[number % len(BEGUN)])
            for _ in range(3):
                data, whole = await talk(target.port, [DAEMON["push"].data], "wait")
                assert [answer.status for answer in target.hear(data, whole=whole)] == [201]
            await target.holds()
            for stream in silent:
                await stream.aclose()
            assert daemon.stop() == 0
            for stream in slow:
                await trio.aclose_forcefully(stream)
            assert "Too many open files" not in daemon.log.read_text()
