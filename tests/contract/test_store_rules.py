"""Rules in the store: the highest revision stays, and who asks what is new misses nothing."""

import random

import msgspec
import pytest

from jqd.domain.errors import PositionMismatch
from jqd.domain.settings import Setting, SettingTable
from jqd.store import settings
from tests.contract.bench import JOURNAL, OTHER_JOURNAL, StoreBench, setting

BODIES = (None, 0, 1, "x" * 300, "é" * 300)


async def test_the_highest_revision_stays_whatever_comes_first(store_bench: StoreBench) -> None:
    store = store_bench.store
    await store.apply_settings(JOURNAL, 0, 5, [setting("a", 3_000_000_000_000_001, "new"), setting("b", 7)])
    old = [setting("a", 3_000_000_000_000_000, "old"), setting("b", 8, None)]
    assert await store.apply_settings(OTHER_JOURNAL, 0, 5, old) == 1
    assert await store.apply_settings(OTHER_JOURNAL, 0, 5, [setting("b", 9)]) is None, "an answer was lost"
    with pytest.raises(PositionMismatch):
        await store.apply_settings(OTHER_JOURNAL, 4, 6, [setting("b", 9)])
    found = await store.follow_settings(0, 0)
    assert found.settings == [setting("a", 3_000_000_000_000_001, "new"), setting("b", 8, None)]
    assert not found.more
    again = await store.follow_settings(found.rules_at, found.signs_at)
    assert (again.settings, again.rules_at) == ([], found.rules_at)


async def test_settings_say_whether_all_daemons_came_through_in_this_life(store_bench: StoreBench) -> None:
    """Until then a store that was emptied has nothing, and says so as one in which nothing was ever set."""
    store = store_bench.store
    store_bench.wipe()
    await store.look(fresh=False)
    assert not (await store.follow_settings(0, 0)).settled
    owner = await store.reserve_sysid("one", True, through=False)
    assert not (await store.follow_settings(0, 0)).settled
    assert (await store.renew_sysid(owner, through=True, settle=True)).settled
    assert (await store.follow_settings(0, 0)).settled


async def test_signs_come_to_all_and_only_of_known_workers(store_bench: StoreBench) -> None:
    store = store_bench.store
    await store.apply_settings(JOURNAL, 0, 5, [setting("a", 1), setting("b", 1)])
    said = await store.follow_settings(0, 0, ["a", "stranger"])
    assert (said.alive, said.unknown) == ({"a": 0}, ["stranger"])
    assert (await store.follow_settings(said.rules_at, said.signs_at)).alive == {}
    more = await store.follow_settings(said.rules_at, said.signs_at, ["b", "a"])
    assert list(more.alive) == ["b", "a"]
    store_bench.clock.advance(2.5)
    again = (await store.follow_settings(0, said.signs_at)).alive
    assert list(again) == ["b", "a"]
    assert all(abs(age_ms - 2_500) <= 1 for age_ms in again.values())


async def test_what_is_forgotten_must_be_what_was_meant_and_silent_since(store_bench: StoreBench) -> None:
    store = store_bench.store
    await store.apply_settings(JOURNAL, 0, 5, [setting("a", 1), setting("b", 2), setting("c", 3)])
    seen = await store.follow_settings(0, 0, ["a", "b"])
    await store.follow_settings(0, seen.signs_at, ["b"])
    meant = [setting("a", 1), setting("b", 2), setting("c", 2), setting("d", 1)]
    assert await store.forget_settings(seen.signs_at, meant) == meant[1:3]
    assert [one.name for one in (await store.follow_settings(0, 0)).settings] == ["b", "c"]
    assert (await store.follow_settings(0, 0, ["a"])).unknown == ["a"]


async def test_many_are_told_in_pieces(store_bench: StoreBench) -> None:
    store = store_bench.store
    names = [f"w{number:03}" for number in range(250)]
    await store.apply_settings(JOURNAL, 0, 5, [setting(name, 1) for name in names])
    at = signs_at = 0
    told: list[str] = []
    for more in (True, True, False):
        found = await store.follow_settings(at, signs_at, names if not at else ())
        told += [one.name for one in found.settings]
        at, signs_at = found.rules_at, found.signs_at
        assert found.more is more
    assert told == names
    assert list(found.alive) == names[200:]


async def test_large_ones_are_told_in_pieces_of_so_many_bytes(
    store_bench: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "FOLLOWED_BYTES_MAX", 2_000)
    sizes = {"a": 300, "b": 5_000, "c": 900, "d": 900, "e": 900}
    for at, (name, size) in enumerate(sizes.items()):
        await store_bench.store.apply_settings(JOURNAL, at, at + 1, [setting(name, 1, "x" * size)])
    at, told = 0, []
    for more in (True, True, True, False):
        found = await store_bench.store.follow_settings(at, 0)
        told.append("".join(one.name for one in found.settings))
        assert found.more is more
        at = found.rules_at
    assert told == ["a", "b", "cd", "e"]


async def test_what_stands_in_no_journal_is_told_like_any_rule_and_the_highest_revision_stays(
    store_bench: StoreBench,
) -> None:
    store = store_bench.store
    assert (await store.follow_settings(0, 0, ["a"], [setting("a", 7), setting("b", 5)])).unknown == []
    assert (await store.follow_settings(0, 0, [], [setting("a", 6, "late")])).settings == [
        setting("a", 7),
        setting("b", 5),
    ]
    found = await store.follow_settings(0, 0, [], [setting("b", 9, "new")])
    assert found.settings == [setting("a", 7), setting("b", 9, "new")]
    assert (list(found.alive), (await store.follow_settings(found.rules_at, found.signs_at)).settings) == (["a"], [])


async def test_any_order_of_any_journals_ends_with_the_same_rules(store_bench: StoreBench) -> None:
    source = random.Random(11)
    store, said, at = store_bench.store, list[Setting](), {JOURNAL: 0, OTHER_JOURNAL: 0}
    # Journals whose numbers are alike may say different things under one revision.
    revisions = random.Random(12).choices(range(1, 40), k=120)
    for revision in revisions:
        one, journal = setting(source.choice("abc"), revision, source.choice(BODIES)), source.choice([*at])
        await store.apply_settings(journal, at[journal], at[journal] + 1, [one])
        at[journal] += 1
        said.append(one)
    for order in (said, said[::-1]):
        book = SettingTable()
        book.take(order)
        found = {one.name: one for one in (await store.follow_settings(0, 0)).settings}
        assert found == {one.name: one for one in book.all("worker")}
    assert msgspec.msgpack.decode(found["a"].body) in BODIES


def view(revision: int, **states: str) -> Setting:
    """How a daemon sees its workers."""
    body = msgspec.msgpack.encode({"rows": {name: [state, 1, "", "", 9, 1] for name, state in states.items()}})
    return Setting("view", "d1", revision, 1, msgspec.Raw(body))


async def test_who_has_not_heard_that_a_worker_gets_nothing_for_now_claims_nothing(store_bench: StoreBench) -> None:
    store, owner = store_bench.store, await store_bench.join()
    for _ in range(3):
        await store_bench.push()
    well = await store.follow_settings(0, 0, [], [view(1, w="unreachable")])
    assert len(await store_bench.claim(owner, limit=1, rules_at=0)) == 1, "that is between the two"
    ill = await store.follow_settings(0, 0, [], [view(2, v="ok", w="backed_off")])
    for known_at in (0, well.rules_at):
        claimed = await store_bench.claim(owner, rules_at=known_at)
        assert (claimed, claimed.stale, claimed.outdated) == ([], True, False)
    claimed = await store_bench.claim(owner, limit=1, rules_at=ill.rules_at)
    assert (len(claimed), claimed.stale) == (1, False)
    await store.follow_settings(0, 0, [], [view(3)])
    assert len(await store_bench.claim(owner, rules_at=ill.rules_at)) == 1, "that it is well is no hurry"
