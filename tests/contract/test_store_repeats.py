"""Retention writes records of its oldest segments anew, so the store meets them again and again, and nothing moves."""

from typing import Any

import msgspec

from jqd.domain.job import ChangeKind, Fate
from jqd.domain.record import Lane
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.contract.bench import JOURNAL, StoreBench, changed, outcome, setting
from tests.contract.lent import handed
from tests.contract.limited import DIGEST, KEYED, item
from tests.contract.limited import setting as limit

HOUR_MS = 3_600_000
MOVED = {"applied", "fence"}  # how far a journal was read, and the next number: all that a repeat moves


class Told:
    """What was applied, so that it can be told again."""

    def __init__(self, bench: StoreBench) -> None:
        store, self._bench = bench.store, bench
        self._apply: dict[Lane, Any] = {
            Lane.JOBS: store.apply_jobs,
            Lane.CHANGES: store.apply_changes,
            Lane.OUTCOMES: store.apply_outcomes,
            Lane.CANCELS: store.apply_cancels,
            Lane.RULES: store.apply_settings,
        }
        self._told: list[tuple[Lane, list[Any]]] = []

    async def tell(self, lane: Lane, *records: Any) -> None:
        self._told.append((lane, [*records]))
        await self._do(lane, [*records])

    async def again(self) -> None:
        for lane, records in self._told:
            await self._do(lane, records)

    async def _do(self, lane: Lane, records: list[Any]) -> None:
        start = self._bench.at[lane]
        self._bench.at[lane] = start + 1
        await self._apply[lane](JOURNAL, start, start + 1, records)


def image(store: FakeStore) -> dict[str, Any]:
    """What the server holds, but for what any repeat moves."""
    found = {key.decode().rpartition("}:")[2]: value for key, value in store.server.keyspace.image().items()}
    plain: dict[str, Any] = {key: getattr(value, "scores", value) for key, value in found.items() if key not in MOVED}
    plain["tombstones"] = [*plain["tombstones"]]  # a note of a cancel may be younger than the first one
    return plain


async def test_what_is_told_again_later_changes_nothing() -> None:
    clock = ManualClock()
    store = FakeStore(clock)
    bench = StoreBench(store, clock)
    await store.look(fresh=True)
    owner, told, make, now_ms = await bench.join(), Told(bench), bench.make, clock.wall_ms()
    await limit(bench, "r", rate={"limit": 9, "per_s": 60.0})
    await told.tell(Lane.RULES, setting("w", 5))
    held = {}
    for name in ("lent", "kept", "followed", "failed", "retried", "asked", "held"):
        await told.tell(Lane.JOBS, make(name, keep_result=name == "kept", max_retry=3))
        (held[name],) = await bench.claim(owner, name, version=str(DIGEST))
    gone, replaced = make(), make()
    dated, expires = make(eligible_at_ms=now_ms + HOUR_MS), make(expires_at_ms=now_ms + HOUR_MS)
    await told.tell(Lane.JOBS, make(), dated, expires, make(queue=KEYED + item("r")), gone, replaced)
    await told.tell(Lane.CHANGES, changed(replaced, now_ms * 1000, ChangeKind.REPLACE, argument=b"\x07"))
    await told.tell(
        Lane.OUTCOMES,
        handed(held["lent"]),
        outcome(held["kept"], Fate.SUCCEEDED, result=b"\x05"),
        outcome(held["followed"], Fate.SUCCEEDED, follows=msgspec.msgpack.encode([{"name": "next"}])),
        outcome(held["failed"], Fate.FAILED, reason="other"),
        outcome(held["retried"], Fate.RETRY, reason="other", delay_ms=HOUR_MS),
    )
    await told.tell(Lane.CANCELS, gone.id, held["asked"].job.id)
    before = image(store)
    clock.advance(5.0)
    await told.again()
    assert image(store) == before
