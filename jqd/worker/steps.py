"""Flows of jobs, written as calls: signatures (calls for later), chains and groups of them. All are immutable.

    chain(fetch.s(url), resize.s(width=300), store.s()).push()       each gets the result of the one before
    group(double.s(1), double.s(2)).then(total.s()).push()           total([2, 4])
    after(ref, another).then(total.s()).push()                       waits for jobs that were pushed before

A pushed step becomes one list of jobs, of which a daemon takes all or none. Each job has its own id, and waits for the
ones before it by `after`. So all of them exist at once, and can be seen, waited for and cancelled.

`.s()` may leave out the function's first parameter if that has no default: then it gets the result of the previous
step. A complete call gets no result and only waits. The result of a group is the list of its members' results, in
order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, Unpack, overload
from uuid import uuid4

import anyio.to_thread
import msgspec

from jqd.client import Ack, Client
from jqd.client.job_info import job_map
from jqd.domain.job_spec import OnePush
from jqd.domain.suggest import suggestion
from jqd.worker.parameters import Call
from jqd.worker.ref import FlowRef, Ref

if TYPE_CHECKING:
    from jqd.worker.job import Job

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
R = TypeVar("R")
A_contra = TypeVar("A_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

NO_ARGUMENT = msgspec.Raw(b"\x80")  # an empty map: without an argument the job would get its parents' results
OPTIONS = tuple(name for name in OnePush.__annotations__ if name not in ("after", "result_into", "one_result"))


class Results(NamedTuple):
    """The jobs for which the next step waits, and the form in which it gets their results."""

    refs: Sequence[Ref[Any]] = ()
    """The jobs, in the order of their results."""
    is_list: bool = False
    """Whether the next step gets a list of results; else there is one job, and it gets its result."""


class Plan:
    """Collects the jobs of a flow in the form that `POST /v1/jobs` takes. Each job comes after those for which it
    waits."""

    def __init__(self, client: Client | None, stem: str) -> None:
        """`client`: pushes the flow; None: the client of the first job's app. `stem`: all ids begin with it."""
        self.jobs: list[dict[str, Any]] = []
        self.groups: list[str] = []
        self._client = client
        self._job: Job[..., Any, Any] | None = None  # the first job's function
        self._stem = stem
        self._by_id: dict[str, dict[str, Any]] = {}

    def new_id(self) -> str:
        """Return the id for the next job."""
        return f"{self._stem}-{len(self.jobs)}"

    def new_group(self) -> str:
        """Add a group, and return its unique name."""
        self.groups.append(f"{self._stem}-{len(self.groups)}")
        return self.groups[-1]

    def client(self) -> Client:
        """Return the client that pushes the jobs and asks about them."""
        assert self._job is not None, "there are jobs to be asked about"
        return self._client or self._job.client

    def add(self, job: "Job[..., Any, Any]", spec: dict[str, Any]) -> Ref[Any]:
        self._job = self._job or job
        self.jobs.append(spec)
        self._by_id[spec["job_id"]] = spec
        ref: Ref[Any] = Ref(job.name, self.client, job.parameters.returns)
        ref.taken(spec["job_id"], duplicate=False)
        return ref

    def keep(self, refs: Sequence[Ref[Any]]) -> None:
        """Let those of the jobs `refs` that belong to this flow keep their results, because a later step needs them."""
        for ref in refs:
            fields = self._by_id.get(ref.job_id, {})
            fields["keep_result"] = fields.get("keep_result") or True


class Step(Generic[A_contra, R_co]):
    """Base class of everything of which a chain can consist. A step takes a value of type A (`object`: it needs none)
    and results in an R."""

    def then(self, following: "Step[R_co, R]") -> "Step[A_contra, R]":
        """Return a chain of this step and `following`, which gets this step's result."""
        return Chain((self, following))

    def plan(self, plan: Plan, before: Results, group: str | None) -> Results:
        """Append this step's jobs to the plan. They wait for the jobs in `before`. Returns the jobs for which the next
        step waits. `group`: the group that this step's jobs join; None: no group."""
        raise NotImplementedError

    def push(
        self: "Step[object, R]",
        client: Client | None = None,
        *,
        id: str | None = None,  # noqa: A002 - what it is called everywhere
        ack: Ack | None = None,
    ) -> "FlowRef[R]":
        """Push all jobs in one request, of which a daemon takes all or none. Blocks for that request.

        `client`: pushes the flow; None: the client of the first job's app. `id`: your own id for the flow, whose jobs
        are `<id>-0`, `<id>-1` … If the same flow is pushed again with the same id, it counts once. Raises TypeError if
        the first step lacks a parameter, ValueError if there is nothing to push; otherwise as `Client.push_all`.
        """
        plan = Plan(client, id or uuid4().hex)
        last = self.plan(plan, Results(), None)
        if not plan.jobs:
            raise ValueError("there is no job here to be pushed: after(…) waits for jobs that were, so add .then(…)")
        plan.client().push_all(plan.jobs, atomic=True, ack=ack)
        job_ids = [job["job_id"] for job in plan.jobs]
        return FlowRef(plan.client, job_ids, last.refs, is_list=last.is_list, groups=plan.groups)

    async def apush(
        self: "Step[object, R]",
        client: Client | None = None,
        *,
        id: str | None = None,  # noqa: A002
        ack: Ack | None = None,
    ) -> "FlowRef[R]":
        """Push all jobs in one request, of which a daemon takes all or none; for async code, under asyncio and trio.
        The push cannot be cancelled once it has begun. Parameters and errors are those of `push`."""
        return await anyio.to_thread.run_sync(lambda: self.push(client, id=id, ack=ack))


@dataclass(frozen=True, eq=False)
class Signature(Step[A_contra, R_co]):
    """A call of a job function to push later: `resize.s("a.png", width=300)`."""

    job: "Job[..., Any, Any]"
    call: Call
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Options of its push. They replace the declared ones."""

    def __repr__(self) -> str:
        return f"<signature of {self.job.name!r}{f', without {self.call.gap}' if self.call.gap else ''}>"

    def set(
        self,
        *,
        id: str | None = None,  # noqa: A002 - what it is called everywhere
        **options: Unpack[OnePush],
    ) -> "Signature[A_contra, R_co]":
        """Return the same call with the given options: those of `Job.options`, except `after` and `result_into`, which
        the flow sets."""
        for given in (one for one in options if one not in OPTIONS):
            raise TypeError(f"a signature has no option {given!r}{suggestion(given, ('id', *OPTIONS))}")
        named = {} if id is None else {"job_id": id}
        fields = {name: value for name, value in options.items() if value is not None}
        return replace(self, options=MappingProxyType({**self.options, **fields, **named}))

    def following(self) -> Mapping[str, Any]:
        """Return the job as a map, for the option `then` of another push and for `Client.close_group`. If the first
        parameter was left out, it gets the result of the job or group that the map follows."""
        return self._map(self._gets_result())

    def _gets_result(self) -> dict[str, Any]:
        gap = None if self.job.parameters.is_whole else self.call.gap
        return {} if gap is None else {"result_into": gap}

    def _map(self, links: Mapping[str, Any], *, follows: bool = True) -> dict[str, Any]:
        argument = self.call.argument
        if follows and argument is None and self.call.gap is None:
            argument = NO_ARGUMENT
        options: dict[str, Any] = {**self.job.usual, **links, **self.options}
        return job_map(self.job.name, None if argument is None else msgspec.Raw(argument), **options)

    def plan(self, plan: Plan, before: Results, group: str | None) -> Results:
        gap = self.call.gap
        links: dict[str, Any] = {} if group is None else {"group": group}
        if before.refs:
            links["after"] = [ref.job_id for ref in before.refs]
        elif gap is not None and not self.job.parameters.may_be_left_out:
            raise TypeError(
                f"job {self.job.name!r}: its signature leaves out {gap}, and nothing comes before it whose result it "
                f"could get; give it, or write chain(…, {self.job.name}.s())"
            )
        if before.refs and gap is not None:
            plan.keep(before.refs)
            links |= self._gets_result() | {"one_result": not before.is_list or None}
        spec = self._map({"job_id": plan.new_id(), **links}, follows=bool(before.refs))
        return Results((plan.add(self.job, spec),))


@dataclass(frozen=True, eq=False)
class Chain(Step[A_contra, R_co]):
    """Steps that run one after another, each with the result of the step before."""

    steps: tuple[Step[Any, Any], ...]

    def plan(self, plan: Plan, before: Results, group: str | None) -> Results:
        for step in self.steps:
            before = step.plan(plan, before, group)
        return before

    def then(self, following: Step[R_co, R]) -> Step[A_contra, R]:
        return Chain((*self.steps, following))


@dataclass(frozen=True, eq=False)
class Group(Step[A_contra, list[R]], Generic[A_contra, R]):
    """Steps that run side by side. Each gets the result of the step before the group."""

    steps: tuple[Step[A_contra, R], ...]

    # If `following` runs although a member failed, that member's result is None.
    def then(self, following: Step[list[R], B] | Step[list[R | None], B]) -> Step[A_contra, B]:
        """Return a chain of this group and `following`, which gets the list of its results, in order."""
        return Chain((self, following))

    def plan(self, plan: Plan, before: Results, group: str | None) -> Results:
        """Append the jobs of all members to the plan. If a member is a group itself, its jobs join the outer group.
        Returns and raises as `Step.plan`; raises TypeError if a member has several results."""
        group = group or plan.new_group()
        refs: list[Ref[Any]] = []
        for step in self.steps:
            results = step.plan(plan, before, group)
            if results.is_list:
                raise TypeError(
                    "a member of a group has one result, and this one ends with a group itself: write its members as "
                    "members, or .then(…) a job that makes one result of theirs"
                )
            refs += results.refs
        return Results(refs, is_list=True)


@dataclass(frozen=True, eq=False)
class Pushed(Step[object, list[R]], Generic[R]):
    """Jobs that were pushed earlier, as the first step of a chain."""

    refs: tuple[Ref[R], ...]

    def then(self, following: Step[list[R], B] | Step[list[R | None], B]) -> Step[object, B]:
        """Return a chain: `following` begins when the jobs have ended, and gets the list of their results, in order."""
        return Chain((self, following))

    def plan(self, plan: Plan, before: Results, group: str | None) -> Results:
        if before.refs:
            raise TypeError("after(…) stands first: the jobs that it names were pushed, and wait for nothing more")
        for ref in self.refs:
            ref.confirm()  # it may be in a buffer: no job can wait for one that no daemon has
        return Results(self.refs, is_list=True)


@overload
def chain(one: Step[A, R], /) -> Step[A, R]: ...
@overload
def chain(one: Step[A, B], two: Step[B, R], /) -> Step[A, R]: ...
@overload
def chain(one: Step[A, B], two: Step[B, C], three: Step[C, R], /) -> Step[A, R]: ...
@overload
def chain(one: Step[A, B], two: Step[B, C], three: Step[C, D], four: Step[D, R], /) -> Step[A, R]: ...
@overload
def chain(
    one: Step[A, B], two: Step[B, C], three: Step[C, D], four: Step[D, E], /, *more: Step[Any, R]
) -> Step[A, R]: ...
def chain(*steps: Step[Any, Any]) -> Step[Any, Any]:
    """Return a chain: steps that run one after another, each with the result of the previous one. Type checkers check
    only the first four."""
    if not steps:
        raise ValueError("a chain has at least one step")
    _expect_steps("chain", steps)
    return Chain(steps)


def group(*steps: Step[A, R]) -> Group[A, R]:
    """Return a group: steps that run side by side. Its result is the list of their results."""
    if not steps:
        raise ValueError("a group has at least one step: of none no job would ever come")
    _expect_steps("group", steps)
    return Group(steps)


def _expect_steps(what: str, steps: Sequence[object]) -> None:
    """Raise TypeError for what is no step, such as the result of a function that was called."""
    for number, step in enumerate(steps, 1):
        if not isinstance(step, Step):
            raise TypeError(
                f"step {number} of this {what} is {type(step).__name__}, not a signature: write name.s(…), which calls "
                "nothing yet"
            )


@overload
def after(*jobs: Ref[R]) -> Pushed[R]: ...
@overload
def after(*jobs: Ref[Any] | str) -> Pushed[Any]: ...
def after(*jobs: Ref[Any] | str) -> Pushed[Any]:
    """Return jobs that were pushed earlier, by anyone, as the beginning of a flow: `after(ref,
    "its-id").then(total.s())`."""
    if not jobs:
        raise ValueError("after(…) names at least one job")
    return Pushed(tuple(_ref(job) if isinstance(job, str) else job for job in jobs))


def _ref(job_id: str) -> Ref[Any]:
    ref: Ref[Any] = Ref("", _no_client, Any)
    ref.taken(job_id, duplicate=False)
    return ref


def _no_client() -> Client:
    raise RuntimeError("after(…) names this job by its id, and asks nobody about it")
