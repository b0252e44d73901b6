"""What is said of workers in a run, and what must hold of it: what one daemon was told of them is known at all.

newer   who says something after another answer has the higher revision, but for wrong clocks at two daemons
older   at the end everybody has the highest revision of what was answered well, or a later one that was said as well:
        so no registration is lost, and no deletion is undone
apart   at the end all daemons and all partitions of the store have the same rules
silent  a registration whose time to live ran out counts nowhere

A word that was not answered may hold or not: it stood in a journal or in none.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import trio

from jqd.desk import handlers
from jqd.desk import workers as desk_workers
from jqd.runner import Card
from jqd.runner.handler import Definition, HandlerOptions
from jqd.testing.sim.holder import ask
from jqd.testing.sim.node import Node
from jqd.testing.sim.notes import Notes
from jqd.testing.sim.say import FAREWELL, HANDLERS, PUT, SHORT, SHORT_TTL_S, Say
from jqd.testing.store import FakeStore
from jqd.words.errors import JqdError, NotFound
from jqd.words.rules import Rule

PATIENCE_S = 12.0  # longer than any word may wait for what is said elsewhere
DUE_S = 0.002  # clocks are read in whole milliseconds


@dataclass(slots=True, eq=False)
class Word:
    """What became of it."""

    say: Say
    node: str
    sent_s: float
    answered_s: float = math.inf
    """Well: it is on disk, they say."""
    refused: bool = False
    rule: Rule | None = None
    """What held at that daemon when it was answered."""


@dataclass
class Registry:
    """All that was said."""

    history: Notes
    nodes: Sequence[Node]
    words: list[Word] = field(default_factory=list)

    async def run(self) -> None:
        """All that is planned, each word at its time."""
        async with trio.open_nursery() as nursery:
            for say in self.history.plan.says:
                nursery.start_soon(self._say, say)

    async def _say(self, say: Say) -> None:
        await trio.sleep_until(say.at_s)
        node = self.nodes[say.node]
        word = Word(say, node.name, trio.current_time())

        async def said(desk: Any) -> None:
            self.words.append(word)
            await _tell(desk, say)
            word.rule = desk.workers.rules.get(*say.key)

        answer = await ask(node, said, patience_s=PATIENCE_S)
        word.refused = isinstance(answer, NotFound)
        if word.rule is not None and not isinstance(answer, JqdError) and say.what != FAREWELL:
            word.answered_s = trio.current_time()
            self._check_newer(word, word.rule.revision)
        self.history.note("said", node.name, say.what, say.name, say.slots, word.rule, type(answer).__name__)

    def _check_newer(self, word: Word, revision: int) -> None:
        for other in self._answered(word.say.key):
            sees = other.node == word.node or not self.history.clock_jumps
            if other is word or other.rule is None or not sees or other.answered_s + DUE_S > word.sent_s:
                continue
            if other.rule.revision >= revision:
                self.history.wrong(f"newer: {_text(word)} has a lower revision than {_text(other)}, which came before")

    def _answered(self, key: tuple[str, str]) -> Iterator[Word]:
        return (word for word in self.words if word.say.key == key and word.answered_s < math.inf)

    # ------------------------------------------------------------ at the end

    async def restless(self, stores: Sequence[FakeStore]) -> str | None:
        """What is not known everywhere yet, or not forgotten."""
        if not self.words:
            return None
        tables = [(node.name, _rules_of(node)) for node in self.nodes]
        for number, store in enumerate(stores):
            told = (await store.another_client().follow_rules(0, 0)).rules
            tables.append((f"partition {number}", {rule.key: rule for rule in told}))
        for key in sorted({word.say.key for word in self.words}):
            held = {where: table.get(key) for where, table in tables}
            if len({None if rule is None else (rule.revision, bytes(rule.body)) for rule in held.values()}) > 1:
                return f"apart: not all have the same {key}: {held}"
        silent = next((node.name for node in self.nodes if _worker(node, SHORT) is not None), None)
        return None if silent is None else f"silent: {silent} still counts on {SHORT}"

    async def check(self, stores: Sequence[FakeStore]) -> None:
        """Once all is quiet."""
        if (restless := await self.restless(stores)) is not None:
            self.history.wrong(restless)
        for key in sorted({word.say.key for word in self.words}):
            for node in self.nodes:
                self._check_holds(node, key)

    def _check_holds(self, node: Node, key: tuple[str, str]) -> None:
        rule, known = _rules_of(node).get(key), list(self._answered(key))
        best = max((word.rule.revision for word in known if word.rule is not None), default=0)
        revision = 0 if rule is None else rule.revision
        shows = key[1] != SHORT  # its time is over by now
        open_ = [word.say for word in self.words if word.say.key == key and word not in known and not word.refused]
        if revision < best:
            last = max(known, key=lambda word: 0 if word.rule is None else word.rule.revision)
            self.history.wrong(f"older: {node.name} has {rule}, although there was {_text(last)}")
        elif revision > best and _slots(node, key) not in {
            say.slots if say.what == PUT and shows else 0 for say in open_
        }:
            self.history.wrong(f"older: {node.name} has {rule}, which nobody said")


async def _tell(desk: Any, say: Say) -> None:
    is_handler = say.name in HANDLERS
    match say.what:
        case "put" if is_handler:
            options = HandlerOptions(max_jobs=say.slots)
            body = "http://127.0.0.1:1/"
            await handlers.put(desk, say.name, Definition(lang="http", body=body, options=options), peer=None)
        case "put":
            ttl_s = SHORT_TTL_S if say.name == SHORT else None
            card = Card(name=say.name, id=say.name, jobs=("none",), max_jobs=say.slots, ttl_s=ttl_s)
            await desk_workers.register(desk, card, peer=None)
        case "farewell" if not is_handler:
            desk.workers.unregister(say.name, "it said 410")
        case _ if is_handler:
            await handlers.delete(desk, say.name)
        case _:
            await desk_workers.unregister(desk, say.name)


def _workers(node: Node) -> Any:
    life = node.life
    assert life is not None
    assert life.daemon is not None
    return life.daemon.workers


def _rules_of(node: Node) -> dict[tuple[str, str], Rule]:
    return {rule.key: rule for rule in _workers(node).rules.every()}


def _worker(node: Node, name: str) -> Any:
    return _workers(node).get(name)


def _slots(node: Node, key: tuple[str, str]) -> int:
    """Of what is shown; 0: nothing."""
    kind, name = key
    if kind == "handler":
        handler = _workers(node).handler(name)
        return handler.versions[-1].options.max_jobs if handler is not None and handler.versions else 0
    worker = _worker(node, name)
    return 0 if worker is None else worker.max_jobs


def _text(word: Word) -> str:
    say = word.say
    return f"a {say.what} of {say.name} ({say.slots}) at {word.node}, answered at {word.answered_s:.3f} s: {word.rule}"
