"""Mistakes that only stores of several partitions can have, planted as those of `bugs.py`.

Each mixes up what belongs to one partition with what belongs to another, or lets one wait for another.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from jqd.control import Control
from jqd.daemon import Daemon
from jqd.domain.record import Lane
from jqd.loops import ingest as ingest_module
from jqd.loops.dispatch import Dispatch
from jqd.loops.poison import PoisonGuard
from jqd.loops.retention.retention import Retention
from jqd.store import Suspects
from tests.simulation.mistake import Mistake, Real, in_scripts, mistake


def _apply_all(real: Real) -> Real:
    def chunks(slices: Any, decode: Any, size_bytes: Any, mine: Any = None) -> Iterator[Any]:
        return iter(real(slices, decode, size_bytes, None))

    return chunks


def _keep_for_the_first(real: Real) -> Real:
    def init(self: Retention, *, partitions: Any, **named: Any) -> None:
        real(self, partitions=partitions[:1], **named)

    return init


def _trust_the_first(real: Real) -> Real:
    def init(self: Daemon, *args: Any, **named: Any) -> None:
        real(self, *args, **named)
        for partition in self.partitions:
            runner: Any = partition.runner
            runner._shared.trusts = self.partitions[0].membership.trusts

    return init


def _own_hand_only(real: Real) -> Real:
    def is_idle(self: Dispatch) -> bool:
        return any(each.is_idle for each in self._claims)

    return is_idle


def _wait_for_all(real: Real) -> Real:
    def choose(self: Dispatch, *args: Any) -> None:
        if all(each.may_claim for each in self._claims):
            real(self, *args)

    return choose


def _take_in_company(real: Real) -> Real:
    def judge(self: PoisonGuard, *, suspect: bool, empty: bool, working: bool) -> Suspects:
        return Suspects.COMPANY

    return judge


def _applied_where_the_first_is(real: Real) -> Real:
    async def wait_caught_up(self: Any, lane: Lane, position: int, timeout_s: float, where: Collection[int]) -> bool:
        return bool(await real(self, lane, position, timeout_s, [0]))

    return wait_caught_up


def _caught_up_with_the_first(real: Real) -> Real:
    def init(self: Daemon, *args: Any, **named: Any) -> None:
        real(self, *args, **named)
        first: Mapping[Lane, Any] = self.partitions[0].lanes
        for partition in self.partitions[1:]:
            for lane, ingest in partition.lanes.items():
                waiting: Any = ingest
                waiting.wait_caught_up = first[lane].wait_caught_up

    return init


APART: dict[str, Mistake] = {
    "apply-all": mistake(
        "kill",
        54,
        "stray",
        "a lane applies records of other partitions, too",
        (ingest_module, "chunks", _apply_all),
        partitions=2,
    ),
    "keep-for-the-first": mistake(
        "trim,absent",
        9,
        "lost",
        "retention asks the first partition only what it has",
        (Retention, "__init__", _keep_for_the_first),
        partitions=2,
    ),
    "trust-the-first": mistake(
        "pause,slow",
        100,
        "doubt",
        "work of all partitions is sent as long as the lease in the first is good",
        (Daemon, "__init__", _trust_the_first),
        partitions=2,
        dense=4,
    ),
    "own-hand-only": mistake(
        "poison",
        15,
        "company",
        "a job that runs alone is taken when the hand of one partition is empty",
        (Dispatch, "_is_idle", _own_hand_only),
        partitions=2,
    ),
    "laid-to-all": mistake(
        "poison",
        100,
        "innocent",
        "a death is laid to a job that was alone in the hand of its partition",
        in_scripts("return noted == id or not Deaths.is_suspect(id)", "return true"),
        (PoisonGuard, "judge", _take_in_company),
        partitions=2,
    ),
    "wait-for-all": mistake(
        "absent",
        1,
        "held up",
        "no partition gives anything while one of them cannot be used",
        (Dispatch, "_choose", _wait_for_all),
        partitions=2,
    ),
    "applied-elsewhere": mistake(
        "lag,pause",
        435,
        "cancel",
        "a cancel counts as applied when the first partition has it",
        (Control, "wait_caught_up", _applied_where_the_first_is),
        partitions=2,
    ),
    "caught-up-elsewhere": mistake(
        "wipe,lag",
        226,
        "again,cancel",
        "a partition counts as caught up when the first one is",
        (Daemon, "__init__", _caught_up_with_the_first),
        partitions=2,
        dense=2,
    ),
}
"""By name."""
