"""Mistakes about flows: own ids, retries, groups, chains and results, planted as those of `bugs.py`."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, structs

from jqd.chaining import follow as following_module
from jqd.chaining import release as release_module
from jqd.domain import record
from jqd.domain.flow import Flow
from jqd.domain.record import Lane
from jqd.loops.retention import retention as retention_module
from jqd.service import groups as groups_module
from jqd.service.push import Pushed
from jqd.service.services import Services
from jqd.store import JobView
from tests.simulation.mistake import Mistake, Real, in_scripts, mistake
from tests.simulation.unreleased import unnoted_in


def _forget_released(real: Real) -> Real:
    """`carry`, which copies jobs to the journal's end, leaves out the head's field `released`."""

    def carry(lane: Lane, body: bytes, keep: Collection[str], position: int) -> Iterator[tuple[Lane, int, bytes]]:
        for into, number, copy in real(lane, body, keep, position):
            if lane is Lane.OUTCOMES:
                yield into, number, copy
                continue
            head, jobs, _ = record.read_jobs(copy)
            head = structs.replace(head, released={})
            yield into, number, record.encode_jobs(head, msgspec.msgpack.encode(jobs))

    return carry


def _as_it_was_told(real: Real) -> Real:
    def ended(services: Services, given: str, job_id: str | None, view: Any) -> JobView | None:
        return view if isinstance(view, JobView) else None

    return ended


def _first_for_all(real: Real) -> Real:
    async def results(services: Services, view: JobView, flow: Flow, bytes_max: int) -> Any:
        found = await real(services, view, flow, bytes_max)
        return found if isinstance(found, str) else dict.fromkeys(found, next(iter(found.values())))

    return results


def _all_but_one(real: Real) -> Real:
    async def close(services: Services, group: str) -> list[str]:
        return list(await real(services, group))[:-1]

    return close


def _under_any_id(real: Real) -> Real:
    numbers = itertools.count()

    async def push_own(services: Services, item: Mapping[str, Any], trace: str = "") -> Pushed:
        pushed: Pushed = await real(services, item, trace)
        await real(services, {**item, "job_id": f"{item['job_id']}.{next(numbers)}"}, trace)
        return pushed

    return push_own


def _by_nobody(real: Real) -> Real:
    async def push_own(services: Services, item: Mapping[str, Any], trace: str = "") -> Pushed:
        pushed: Pushed = await real(services, {**item, "after": ["0" * 26], "delay": 86_400}, trace)
        return pushed

    return push_own


def _anew_each_time(real: Real) -> Real:
    numbers = itertools.count()

    def read(entries: Iterable[bytes], waits: dict[bytes, str]) -> Any:
        for each in real(entries, waits):
            names = [f"{job.job_id}.{next(numbers)}" for job in each.jobs]
            items = [
                {**msgspec.msgpack.decode(item, type=dict[str, Raw]), "job_id": Raw(msgspec.msgpack.encode(name))}
                for item, name in zip(each.items, names, strict=True)
            ]
            jobs = [structs.replace(job, job_id=name) for job, name in zip(each.jobs, names, strict=True)]
            yield each._replace(items=items, jobs=jobs)

    return read


UNFLOWED: dict[str, Mistake] = {
    "promise-unseen": mistake(
        "backlog",
        139,
        "parent,group early",
        "a parent under an own id that lags behind later jobs counts as one that is gone",
        in_scripts("redis.call('ZSCORE', K.tombstones, 'p' .. pair.id)", "false"),
        flows=True,
        dense=2,
    ),
    "first-end-stays": mistake(
        "",
        2,
        "void",
        "a parent that is tried anew has failed for whoever was told so",
        in_scripts("tonumber(known_stage) >= stage or", "known ~= '' or"),
        flows=True,
        dense=2,
    ),
    "retry-untold": mistake(
        "",
        11,
        "void",
        "nobody is told that a parent begins anew, nor looks",
        in_scripts("    Counts.note_ends({id}, now_ms)  -- it goes on", "    -- it goes on"),
        (release_module, "ended", _as_it_was_told),
        flows=True,
        dense=2,
    ),
    "released-forgotten": mistake(
        "trim,wipe,purge",
        66,
        "stuck,argument",
        "a journal's copy of a job forgets that it waits for nobody any more",
        (retention_module, "carry", _forget_released),
        flows=True,
        pauses=True,  # so that it is copied between its release and its start
        dense=3,
    ),
    "reap-unnoted": mistake(
        "kill,cut",
        138,
        "stuck,group never",
        "nobody is told of what ends as a dead hand is emptied",
        unnoted_in("reap"),
        awaits=True,
        flows=True,
        dense=3,
    ),
    "one-result-for-all": mistake(
        "",
        2,
        "argument",
        "each parent's result is that of the first",
        (release_module, "_results", _first_for_all),
        flows=True,
    ),
    "member-missed": mistake(
        "",
        7,
        "group early",
        "what waits for a group does not wait for its last member",
        (groups_module, "_close", _all_but_one),
        flows=True,
    ),
    "two-wait": mistake(
        "",
        6,
        "group twice",
        "two jobs wait for a group",
        (groups_module, "_push_own", _under_any_id),
        flows=True,
    ),
    "none-waits": mistake(
        "",
        5,
        "group never",
        "what waits for a group waits for somebody else",
        (groups_module, "_push_own", _by_nobody),
        flows=True,
    ),
    "follower-by-chance": mistake(
        "lost",
        25,
        "twice",
        "a job that follows another gets another id with each try",
        (following_module, "_read", _anew_each_time),
        flows=True,
        dense=2,
    ),
}
"""By name."""
