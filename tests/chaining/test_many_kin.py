"""Ten thousand parents of one child, and ten thousand children of one parent: no call of the store is for many."""

from typing import Any

import pytest

from jqd.domain.jobid import ALPHABET
from jqd.store.links import KIN, NEW, ParentNote, WatchPair
from jqd.store.methods import STEP_JOBS
from tests.contract.bench import StoreBench

MANY = 10_000
WORDS = {"watch_parents": (4, KIN), "note_parents": (6, KIN), "drop_outbox": (2, STEP_JOBS)}
"""Script → words for one of them, and how many of them one call may be for."""


@pytest.fixture
def calls(bench: StoreBench, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """How many words each call had, by its script: none of them is run."""
    asked: dict[str, list[int]] = {}

    async def call(name: str, *words: Any) -> Any:
        asked.setdefault(name, []).append(len(words))
        pairs = len(words) // WORDS[name][0]
        return [b"", b"", b"", b"0"] * pairs if name == "watch_parents" else []

    caller: Any = bench.store._caller
    monkeypatch.setattr(caller, "call", call)
    return asked


async def test_no_call_is_for_more_than_a_few_milliseconds(bench: StoreBench, calls: dict[str, list[int]]) -> None:
    child, *parents = bench.ids.take(MANY + 1, ALPHABET[0]).ids()
    found = await bench.store.watch_parents([WatchPair(child, "", parent, "") for parent in parents])
    assert len(found) == MANY
    await bench.store.note_parents([ParentNote(child, size=NEW), *(ParentNote(child, each) for each in parents)])
    await bench.store.note_parents([ParentNote(each, child, "succeeded") for each in parents])
    await bench.store.drop_outbox([b"entry"], children=[(child, each) for each in parents])
    for name, (words, most) in WORDS.items():
        beside = 3  # identity of the store; a shelf, the number of pairs and the entry
        assert max(calls[name]) <= words * most + beside, name
        assert sum(calls[name]) >= words * MANY, name
