"""What workers do with jobs, and which of them follow others or wait for them: drawn for `plan.py`."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

EXPIRIES_S = (0.3, 2.0, 8.0)  # at most: from a moment of being busy to the longest a daemon is away
EXPIRING = 0.6  # share of plain jobs that expire, in runs with such
AWAITED = 0.6  # plain jobs that wait for others, for each of the others, in runs with such
PARENTS = (1, 1, 2, 3)  # of one
HURRIED = 0.15  # share of those that are to run now
FOLLOWED = 0.5  # share of plain jobs that others follow, in runs with such; of those half as many


NUMBER, TAKEN = "number", "taken"  # fields of an argument that gets results


def number_of(argument: Any) -> int:
    """Of the job that has that argument."""
    return int(argument[NUMBER] if isinstance(argument, dict) else argument)


@dataclass(frozen=True, slots=True)
class Push:
    """A request of one or more jobs."""

    at_s: float
    node: int
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """What workers do with a job, attempt by attempt; the last stands for all after it."""

    jobtype: str
    priority: int
    timeout_s: float
    max_retry: int
    delay_s: float
    """0: at once."""
    attempts: tuple[tuple[str, float], ...]
    """How each ends, and after how many seconds: ok, error, failed, die, silent, refuse (503), or murder."""
    cancels: tuple[tuple[float, int], ...]
    """When (seconds after its push) it is cancelled, through which daemon."""
    expires_s: float = 0.0
    """From its date on; 0: never."""
    follows: tuple[int, ...] = ()
    """Numbers of jobs that follow it, which each success names."""
    after: tuple[int, ...] = ()
    """Numbers of plain jobs that it waits for."""
    on_parent_failure: str = ""
    hurries_s: tuple[float, ...] = ()
    """When (seconds after its push) somebody says that it is to run now."""
    own_id: bool = False
    """Whether its pusher chooses its id."""
    by_name: bool = False
    """Whether it names those that it waits for by ids that their pushers chose."""
    group: str = ""
    says_then: bool = False
    """Whether its push says what follows it, not each success."""
    result_bytes: int = 0
    """Of what its success returns, about; 0: nothing."""
    takes: bool = False
    """Whether its argument gets the results of those that it waits for, or follows."""
    retries: tuple[tuple[float, int], ...] = ()
    """When (seconds after its push) somebody wants it tried anew, through which daemon."""
    deletes: tuple[tuple[float, int], ...] = ()
    """The same of who wants it deleted."""

    def body(self, number: int) -> dict[str, object]:
        """As it is pushed, but for what needs other works."""
        body: dict[str, object] = {
            "name": self.jobtype,
            "argument": {NUMBER: number} if self.takes else number,
            "priority": self.priority,
            "timeout": self.timeout_s,
            "max_retry": self.max_retry,
        }
        body |= {"keep_result": True} if self.result_bytes else {}
        body |= {"result_into": TAKEN} if self.takes else {}
        given = {"delay": self.delay_s, "expires_in": self.expires_s, "group": self.group}
        return body | {name: value for name, value in given.items() if value}

    @property
    def is_poison(self) -> bool:
        """Whether it kills its daemon."""
        return self.attempts[0][0] == "murder"


def own_id_of(number: int) -> str:
    """What its pusher calls it, if he does."""
    return f"own{number}"


def result_of(works: Mapping[int, Work] | Sequence[Work], number: int) -> Any:
    """What a success of it returns."""
    size = works[number].result_bytes
    return [number, "x" * size] if size else None


def body_of(works: Mapping[int, Work] | Sequence[Work], number: int) -> dict[str, object]:
    """As it is pushed, with what is to follow it, if its push says so."""
    work = works[number]
    named: dict[str, object] = {"job_id": own_id_of(number)} if work.own_id else {}
    then = [body_of(works, each) for each in work.follows] if work.says_then else []
    return work.body(number) | named | ({"then": then} if then else {})


def draw_work(source: random.Random, nodes: int, types: Sequence[str], bad_workers: bool) -> Work:
    ends = ["ok", "ok", "ok", "error", "failed"] + (["die", "silent", "refuse", "error"] if bad_workers else [])
    attempts = [(source.choice(ends), _duration_s(source)) for _ in range(source.randint(0, 2))]
    attempts.append((source.choice(("ok", "ok", "ok", "failed", "error")), _duration_s(source)))
    cancels = [(source.uniform(0.0, 6.0), source.randrange(nodes)) for _ in range(source.choice((0, 0, 0, 1, 1, 2)))]
    return Work(
        jobtype=source.choice(types),
        priority=source.choice((0, 0, 1)),
        timeout_s=source.choice((2.0, 30.0, 30.0)),
        max_retry=source.choice((0, 3, 3)),
        delay_s=source.uniform(1.0, 8.0) if source.random() < 0.15 else 0.0,
        attempts=tuple(attempts),
        cancels=tuple(cancels),
    )


def _duration_s(source: random.Random) -> float:
    return source.choice((0.0, 0.05, source.uniform(0.1, 1.0), source.uniform(1.0, 4.0)))


def expiring(source: random.Random, work: Work) -> Work:
    expires_s = source.uniform(0.1, source.choice(EXPIRIES_S))
    return replace(work, expires_s=expires_s) if source.random() < EXPIRING else work


def let_follow(
    source: random.Random, works: list[Work], plain: Sequence[int], nodes: int, types: Sequence[str]
) -> None:
    """Add jobs that follow some of the plain ones, and a few that follow those."""
    leaders = [number for number in plain if source.random() < FOLLOWED]
    for number in leaders:
        its = range(len(works), len(works) + source.choice((1, 1, 2)))
        works[number] = replace(works[number], follows=tuple(its))
        works += [replace(draw_work(source, nodes, types, bad_workers=False), delay_s=0.0, cancels=()) for _ in its]
        leaders += [follower for follower in its if source.random() < FOLLOWED / 2]


def let_wait(
    source: random.Random, works: list[Work], pushes: list[Push], nodes: int, types: Sequence[str], until_s: float
) -> None:
    """Add jobs that wait for some of the plain ones, and for each other."""
    known = {number: push.at_s for push in pushes for number in push.numbers}
    for _ in range(round(len(known) * AWAITED) + 1):
        parents = tuple(source.sample(sorted(known), min(source.choice(PARENTS), len(known))))
        at_s = min(until_s, max(known[parent] for parent in parents) + source.uniform(0.1, 6.0))
        hurries = (source.uniform(0.0, 4.0),) if source.random() < HURRIED else ()
        policy = source.choice(("run", "run", "cancel", "fail"))
        drawn = replace(draw_work(source, nodes, types, bad_workers=False), delay_s=0.0)
        known[len(works)] = at_s
        pushes.append(Push(at_s, source.randrange(nodes), (len(works),)))
        works.append(replace(drawn, after=parents, on_parent_failure=policy, hurries_s=hurries))
