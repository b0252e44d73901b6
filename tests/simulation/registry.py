"""What is said of workers, jobtypes, daemons and schedules, and what must hold of it: what one was told, all know.

newer   who says something after another answer has the higher revision, but for wrong clocks at two daemons
older   at the end everybody has the highest revision of what was answered well, or a later one that was said as well:
        so no registration is lost, and no deletion is undone
apart   at the end all daemons and all partitions of the store have the same rules
silent  a registration whose time to live ran out counts nowhere
kept    what was deleted is forgotten everywhere in the end; nothing else is, and it does not come back
paused  no daemon claims jobs of a type that it knows to be paused, or could know to be since a second
drained no daemon claims jobs that knows, or could know since a second, that it is drained

A word that was not answered may hold or not: it stood in a journal or in none.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import trio
from msgspec import Raw, structs

from jqd.cron import service as schedules
from jqd.cron.schedules import Plan as Dates
from jqd.cron.schedules import Schedules, Template
from jqd.domain.dates import iso
from jqd.domain.errors import JqdError, NotFound
from jqd.domain.settings import CONSTRAINT, NIL, Setting
from jqd.rate_limits.constraints import Constraint, Constraints, Rate, body_of, digest_of
from jqd.runner import WorkerSpec
from jqd.runner.handler import Definition, HandlerOptions, is_deleted
from jqd.runner.registry import HANDLER
from jqd.service import handlers, pauses, settings
from jqd.service import workers as service_workers
from jqd.testing.store import FakeStore
from tests.simulation.holder import ask
from tests.simulation.loop import EPOCH_MS
from tests.simulation.node import Life, Node
from tests.simulation.notes import Notes
from tests.simulation.plan import FAULTY_S
from tests.simulation.said import HEARD_S, Word
from tests.simulation.say import DRAIN, FAREWELL, GO_ON, HANDLERS, PAUSE, PUT, RESUME, SHORT, SHORT_TTL_S, Say
from tests.simulation.work import Work

PATIENCE_S = 12.0  # longer than any word may wait for what is said elsewhere
DUE_S = 0.002  # clocks are read in whole milliseconds
AGAIN_S = 0.5  # between tries to resume what is paused


Table = dict[tuple[str, str], Setting]


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

    async def resume(self, frozen: Callable[[], bool]) -> None:
        """All jobtypes that may be paused and daemons that may be drained, once all is mended: what waits is to run.

        `frozen`: whether a daemon stands still. It may say a pause yet that it was asked for before.
        """
        is_over = not any(word.say.key[0] in ("pause", "drain") for word in self.words)
        while not is_over:
            await self._resume()
            await trio.sleep(HEARD_S)
            is_over = not frozen() and not any(
                key[0] in ("pause", "drain") and not setting.is_deleted
                for node in self.nodes
                for key, setting in _rules_of(node).items()
            )

    async def _resume(self) -> None:
        paused = {(RESUME, word.say.name, 0) for word in self.words if word.say.key[0] == "pause"}
        drained = {(GO_ON, word.say.name, word.say.slots) for word in self.words if word.say.key[0] == "drain"}
        for what, name, slots in sorted(paused | drained):
            turn = 0
            while (
                await self._say(Say(trio.current_time(), turn % len(self.nodes), what, name, slots))
            ).setting is None:
                turn += 1
                await trio.sleep(AGAIN_S)

    async def _say(self, say: Say) -> Word:
        await trio.sleep_until(say.at_s)
        if say.what in (DRAIN, GO_ON):
            say = replace(say, name=self.nodes[say.slots].sysid)
        node = self.nodes[say.node]
        word = Word(say, node.name, trio.current_time())

        async def said(services: Any) -> None:
            self.words.append(word)
            await _tell(services, say, self.history.plan.works)
            word.setting = services.workers.settings.get(*say.key)

        answer = await ask(node, said, patience_s=PATIENCE_S)
        word.refused = isinstance(answer, NotFound)
        if word.setting is not None and not isinstance(answer, JqdError) and say.what != FAREWELL:
            word.answered_s = trio.current_time()
            self._check_newer(word, word.setting.revision)
        self.history.note("said", node.name, say.what, say.name, say.slots, word.setting, type(answer).__name__)
        return word

    def _check_newer(self, word: Word, revision: int) -> None:
        for other in self._answered(word.say.key):
            sees = other.node == word.node or not self.history.clock_jumps
            if other is word or other.setting is None or not sees or other.answered_s + DUE_S > word.sent_s:
                continue
            if other.setting.revision >= revision:
                self.history.wrong(f"newer: {_text(word)} has a lower revision than {_text(other)}, which came before")

    def _answered(self, key: tuple[str, str]) -> Iterator[Word]:
        return (word for word in self.words if word.say.key == key and word.answered_s < math.inf)

    # ------------------------------------------------------------ pauses and drains

    def claimed(self, life: Life, jobtype: str, sent_s: float, knew: Collection[str]) -> None:
        """That life got jobs of a type, and asked for them then. `knew`: what it had heard that forbids it."""
        node = life.label.partition(".")[0]
        sysid = next(each.sysid for each in self.nodes if each.name == node)
        for what, key in (("paused", ("pause", jobtype)), ("drained", ("drain", sysid))):
            claims = f"{what}: {life.label} claims jobs of {jobtype!r} at {sent_s:.3f} s"
            if what in knew:
                self.history.wrong(f"{claims}, and knows of it")
            elif (word := self._forbids(key, sent_s, node)) is not None:
                self.history.wrong(f"{claims} after {_text(word)}")

    def _forbids(self, key: tuple[str, str], sent_s: float, node: str) -> Word | None:
        """A word on a pause that this node could know by then, and that surely held."""
        for word in self._answered(key):
            if (
                word.say.what in (PAUSE, DRAIN)
                and word.setting
                and not word.setting.is_deleted
                and not self._is_over(word)
            ):
                since_s = max(word.answered_s, self.history.hindered_to(word.sent_s, sent_s, word.node, node))
                if sent_s > since_s + HEARD_S:
                    return word
        return None

    def _is_over(self, pause: Word) -> bool:
        """Whether it may be."""
        assert pause.setting is not None
        others = (word for word in self.words if word.say.key == pause.say.key and word.say.what in (RESUME, GO_ON))
        return any(
            word.answered_s >= pause.sent_s or word.setting is None or word.setting.revision > pause.setting.revision
            for word in others
        )

    # ------------------------------------------------------------ at the end

    async def restless(self, stores: Sequence[FakeStore]) -> str | None:
        """What is not known everywhere yet, or not forgotten."""
        if not self.words:
            return None
        tables = await self._tables(stores)
        for key in sorted({word.say.key for word in self.words}):
            held = {where: table.get(key) for where, table in tables}
            if (
                len({None if setting is None else (setting.revision, bytes(setting.body)) for setting in held.values()})
                > 1
            ):
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

    async def _tables(self, stores: Sequence[FakeStore]) -> list[tuple[str, Table]]:
        tables = [(node.name, _rules_of(node)) for node in self.nodes]
        for number, store in enumerate(stores):
            told = (await store.another_client().follow_settings(0, 0)).settings
            tables.append((f"partition {number}", {setting.key: setting for setting in told}))
        return tables

    def known(self) -> Table:
        """What is known now of all that words were about, once all is quiet."""
        keys = {word.say.key for word in self.words} - {("worker", SHORT)}
        return {key: setting for key, setting in _rules_of(self.nodes[0]).items() if key in keys}

    async def check_later(self, stores: Sequence[FakeStore], before: Table, *, again: bool) -> None:
        """Long after that. `again`: all began anew, with what their journals have."""
        for where, table in await self._tables(stores):
            for key, setting in before.items():
                now = table.get(key)
                if not _is_gone(setting) and now != setting:
                    self.history.wrong(f"older: {where} has {now}, long after there was {setting}")
                elif _is_gone(setting) and now is not None and not (again and _is_gone(now)):
                    self.history.wrong(f"kept: {where} has {now}, long after there was {setting}")

    def _check_holds(self, node: Node, key: tuple[str, str]) -> None:
        setting, known = _rules_of(node).get(key), list(self._answered(key))
        best = max((word.setting.revision for word in known if word.setting is not None), default=0)
        revision = 0 if setting is None else setting.revision
        shows = key[1] != SHORT  # its time is over by now
        open_ = [word.say for word in self.words if word.say.key == key and word not in known and not word.refused]
        if revision < best:
            last = max(known, key=lambda word: 0 if word.setting is None else word.setting.revision)
            self.history.wrong(f"older: {node.name} has {setting}, although there was {_text(last)}")
        elif revision > best and not any(_shows(say, shows) in (None, _slots(node, key)) for say in open_):
            self.history.wrong(f"older: {node.name} has {setting}, which nobody said")


async def _tell(services: Any, say: Say, works: Sequence[Work]) -> None:
    match say.key[0]:
        case "pause":
            await (pauses.pause if say.what == PAUSE else pauses.resume)(services, say.name)
        case "drain":
            await (pauses.drain if say.what == DRAIN else pauses.resume_daemon)(services, say.name)
        case "schedule":
            await _tell_dates(services, say, works)
        case "constraint":
            await settings.save(
                services, lambda: {(CONSTRAINT, say.name): _constraint(say) if say.what == PUT else NIL}
            )
        case _:
            await _tell_worker(services, say)


async def _tell_dates(services: Any, say: Say, works: Sequence[Work]) -> None:
    match say.what:
        case "put":
            work, dates = works[say.slots], say.dates
            assert dates is not None
            job, until = _job(say.slots, work), iso(EPOCH_MS + round(FAULTY_S * 1000))
            plan = Dates(job=job, every=dates.every_s, until=until, missed=dates.missed, overlap=dates.overlap)
            await schedules.put(services, say.name, plan)
        case "delete":
            await schedules.delete(services, say.name)
        case "pause":
            await schedules.pause(services, say.name)
        case _:
            await schedules.resume(services, say.name)


def _constraint(say: Say) -> bytes:
    limit = say.limit
    assert limit is not None
    rate = Rate(limit.most, limit.per_s) if limit.per_s else None
    one = Constraint(f"job.name in {list(limit.jobtypes)}", rate=rate, concurrency=None if rate else limit.most)
    return body_of(structs.replace(one, digest=digest_of(say.name, one)))


def _job(number: int, work: Work) -> Template:
    argument = Raw(msgspec.msgpack.encode(number))
    return Template(name=work.jobtype, argument=argument, timeout=work.timeout_s, max_retry=work.max_retry)


async def _tell_worker(services: Any, say: Say) -> None:
    is_handler = say.name in HANDLERS
    match say.what:
        case "put" if is_handler:
            options = HandlerOptions(max_jobs=say.slots)
            body = "http://127.0.0.1:1/"
            await handlers.put(services, say.name, Definition(lang="http", body=body, options=options), peer=None)
        case "put":
            ttl_s = SHORT_TTL_S if say.name == SHORT else None
            card = WorkerSpec(name=say.name, id=say.name, jobs=("none",), max_jobs=say.slots, ttl_s=ttl_s)
            await service_workers.register(services, card, peer=None)
        case "farewell" if not is_handler:
            services.workers.unregister(say.name, "it said 410")
        case _ if is_handler:
            await handlers.delete(services, say.name)
        case _:
            await service_workers.unregister(services, say.name)


def _workers(node: Node) -> Any:
    life = node.life
    assert life is not None
    assert life.daemon is not None
    return life.daemon.workers


def _services(node: Node) -> Any:
    life: Any = node.life
    return life.daemon.parts.services


def _rules_of(node: Node) -> Table:
    return {setting.key: setting for setting in _workers(node).settings.every()}


def _worker(node: Node, name: str) -> Any:
    return _workers(node).get(name)


def _is_gone(setting: Setting) -> bool:
    return setting.is_deleted or (setting.kind == HANDLER and is_deleted(setting.body))


def _shows(say: Say, shows: bool) -> int | None:
    """What `_slots` gives if that word holds; None: whatever was there before."""
    match say.key[0], say.what:
        case "pause", what:
            return int(what == PAUSE)
        case "drain", what:
            return int(what == DRAIN)
        case "schedule", ("pause" | "resume"):
            return None
        case _, what:
            return say.slots if what == PUT and shows else 0


def _slots(node: Node, key: tuple[str, str]) -> int:
    """Of what is shown; 0: nothing."""
    kind, name = key
    if kind == "pause":
        return int(name in _services(node).pauses.names)
    if kind == "drain":
        return int(name in _services(node).drains.names)
    if kind == "constraint":
        known = Constraints(_workers(node).settings).known.get(name)
        return (
            0 if known is None else known.constraint.concurrency or getattr(known.constraint.rate, "limit", None) or 0
        )
    if kind == "schedule":
        one = _services(node).feature(Schedules).known.get(name)
        return 0 if one is None else msgspec.msgpack.decode(one.schedule.job.argument)
    if kind == "handler":
        handler = _workers(node).handler(name)
        return handler.versions[-1].options.max_jobs if handler is not None and handler.versions else 0
    worker = _worker(node, name)
    return 0 if worker is None else worker.max_jobs


def _text(word: Word) -> str:
    say = word.say
    return (
        f"a {say.what} of {say.name} ({say.slots}) at {word.node}, answered at {word.answered_s:.3f} s: {word.setting}"
    )
