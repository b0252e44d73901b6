"""A daemon's memory: what large requests took is given back, and rounds of them leave no more behind than the first."""

import subprocess
import sys
from collections.abc import Callable

import httpx2
import msgspec
import pytest
import trio

from tests.directories import short_directory
from tests.fuzz.requests import memory_mb
from tests.live.harness import WAIT_S, Daemon

ROUNDS = 10
GROWTH_MB_MAX = 64.0  # what allocators keep swings by up to 55; one body of forty that stayed would be 300
KEPT_MB_MAX = 220.0  # above a daemon at rest: its share of four arrays at once, and what lies between
TOGETHER = 4
SMALL_VALUES = [{"name": "much", "argument": [1] * 8_000}] * 1_000
TAGGED = [{"name": "much", "tags": [f"tag {number}" for number in range(32)]}] * 5_000
ENCODERS: dict[str, Callable[[object], bytes]] = {"msgpack": msgspec.msgpack.encode, "json": msgspec.json.encode}

# Bodies of which a larger one came first, each with something small behind it that stays.
BODIES = """
from pathlib import Path
from jqd.cli.server import return_memory

def memory():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

return_memory()
bytearray(16 << 20)
before, bodies, stays = memory(), [], []
for _ in range(20):
    bodies.append(bytearray(b"x") * (4 << 20))
    stays.append(bytearray(1_000))
del bodies
print(memory() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells of memory on Linux only")
def test_large_bodies_go_back_to_the_machine() -> None:
    told = subprocess.run([sys.executable, "-c", BODIES], capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert int(told.stdout) < 4 << 20, "of 80 MiB that were let go of"


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells of memory on Linux only")
@pytest.mark.parametrize("language", ENCODERS)
def test_arrays_leave_memory_flat(language: str) -> None:
    bodies = [ENCODERS[language](jobs) for jobs in (SMALL_VALUES, TAGGED)]
    with short_directory() as base, Daemon(base / "d", env={"JQD_LOG__LEVEL": "error"}) as daemon:
        pid = daemon.child.pid
        rest_mb = memory_mb(pid)
        trio.run(_rounds, daemon.url, bodies, language)
        first_mb = memory_mb(pid)
        trio.run(_rounds, daemon.url, bodies, language)
        second_mb = memory_mb(pid)
    told = f"{rest_mb:.0f} MB at rest, {first_mb:.0f} after {ROUNDS} rounds, {second_mb:.0f} after as many more"
    assert second_mb - first_mb <= GROWTH_MB_MAX, told
    assert second_mb - rest_mb <= KEPT_MB_MAX, told


async def _rounds(url: str, bodies: list[bytes], language: str) -> None:
    """Some at once, again and again; returns when the store has all."""
    headers = {"content-type": f"application/{language}", "accept": "application/json"}
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=WAIT_S) as http:

        async def push(body: bytes, ack: str) -> None:
            answer = await http.post("/v1/jobs", params={"ack": ack}, content=body)
            assert answer.status_code == 201, answer.text[:1_000]

        for turn in range(ROUNDS):
            async with trio.open_nursery() as nursery:
                for place in range(TOGETHER):
                    nursery.start_soon(push, bodies[(turn + place) % len(bodies)], "fsync")
        one = ENCODERS[language]({"name": "last"})
        with trio.fail_after(WAIT_S):
            while (await http.post("/v1/jobs", params={"ack": "store"}, content=one)).json()["ack"] != "store":
                await trio.sleep(0.1)  # a process of its own applies them
