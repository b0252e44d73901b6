"""Jobs under constraints, and claims of them."""

from typing import Any

import msgspec
from msgspec import Raw

from jqd.domain.job import Held, Wanted
from jqd.domain.record import Lane
from jqd.domain.settings import Setting
from jqd.store import Claimed, Owner
from tests.contract.bench import ALL, JOURNAL, StoreBench

DIGEST = 7
KEYED = f"\x1e{DIGEST}"
"""Behind the jobtype of a queue that no constraint limits, while there is one of that digest."""


def item(name: str, cost: object = 1, key: str = "") -> str:
    return f"\x1e{name}\x1d{cost}\x1d{key}"


async def setting(bench: StoreBench, name: str, revision: int = 1, **body: Any) -> None:
    """Say a constraint; without a body there is none any more."""
    raw = Raw(msgspec.msgpack.encode({"digest": DIGEST, **body} if body else None))
    start = bench.at[Lane.RULES]
    bench.at[Lane.RULES] = start + 100
    await bench.store.apply_settings(JOURNAL, start, start + 100, [Setting("constraint", name, revision, 2**41, raw)])


async def claim(bench: StoreBench, owner: Owner, limit: int = 100, jobtype: str = "mail", **more: Any) -> Claimed:
    return await bench.store.get_waiting_jobs(owner, jobtype, limit, **{**ALL, "version": str(DIGEST), **more})


async def taken(bench: StoreBench, owner: Owner, limit: int = 100) -> list[Held]:
    return await claim(bench, owner, limit)


async def heads(bench: StoreBench, jobtype: str | None = "mail") -> list[tuple[str, int, str, int]]:
    rows = await bench.store.get_waiting_jobtypes([Wanted(jobtype)], 10)
    return [(row.jobtype, row.priority, row.head_id, row.waiting) for row in rows]
