"""Flows made up at random, each from its own seed: who waits for whom, what follows, and what becomes of it."""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.chaos.cluster import TIMEOUT_S
from tests.chaos.worker import STEP
from tests.chaos.workload import MAX_RETRY

How = Literal["root", "after", "then", "made", "group"]
Act = Literal["", "cancel", "flow_cancel", "group_cancel", "retry", "flow_retry", "group_retry"]

OWN = "flow-"  # how ids begin that a pusher chose
NODES, REQUESTS = (2, 9), (1, 4)
PARENTS = (1, 1, 1, 2, 2, 3, 5)
GROUP_SHARE, AFTER_SHARE, FOLLOWED_SHARE, OWN_SHARE, BARE_SHARE = 0.3, 0.7, 0.25, 0.5, 0.2
PLANS = ("ok", "retry", "failed"), (0.88, 0.06, 0.06)
ACTS: tuple[Act, ...] = ("cancel", "flow_cancel", "retry", "flow_retry")
ACTS_OF_GROUPS: tuple[Act, ...] = (*ACTS, "group_cancel", "group_retry")
ACT_SHARE = 0.4  # of the flows have something done to them
LATE_SHARE = 0.35  # of the steps of a flow that is tried anew fail at first
PAUSES_S = (0.0, 0.0, 0.05, 0.3, 1.0, 2.5)  # before a request: its parents are on their way, or run, or have ended
ACTS_S = (0.0, 0.1, 0.5, 1.5, 3.0)
MS = (0, 0, 10, 100, 600)
DEPTH_MAX = 3  # of what follows what follows


@dataclass
class Node:
    """One job of a flow."""

    n: int
    flow: int
    how: How
    plan: str = "ok"
    ms: int = 0
    key: str | None = None
    wants: str = ""
    """Where it gets the results: `in` its argument, or as `all` of it; empty: nowhere."""
    one: bool = False
    keep: bool = True
    policy: str = "fail"
    parents: list[int] = field(default_factory=list)
    then: list["Node"] = field(default_factory=list)
    makes: list["Node"] = field(default_factory=list)
    group: str | None = None

    def spec(self, ids: Mapping[int, str], until_s: float) -> dict[str, Any]:
        """As it is pushed. `ids`: of parents; `until_s`: how long a late one fails."""
        told: dict[str, Any] = {"name": STEP, "max_retry": MAX_RETRY, "timeout": TIMEOUT_S, "keep_result": self.keep}
        if self.wants != "all":
            told["argument"] = {"n": self.n, "plan": self.plan, "ms": self.ms, "until": until_s}
            if self.makes:
                told["argument"]["makes"] = [each.spec(ids, until_s) for each in self.makes]
        if self.wants == "in":
            told["result_into"] = "in"
        if self.key is not None and self.how != "group":
            told["job_id"] = self.key
        if self.how == "after":
            told |= {"after": [ids[parent] for parent in self.parents], "on_parent_failure": self.policy}
            told |= {"one_result": True} if self.one else {}
        if self.then:
            told["then"] = [each.spec(ids, until_s) for each in self.then]
        if self.group is not None and self.how != "group":
            told["group"] = self.group
        return told

    def whole(self) -> Iterator["Node"]:
        """It and all that follows it."""
        yield self
        for each in (*self.then, *self.makes):
            yield from each.whole()

    def told(self) -> dict[str, Any]:
        """As the history tells it."""
        fields = ("n", "flow", "how", "plan", "key", "wants", "one", "keep", "policy", "parents", "group")
        return {name: getattr(self, name) for name in fields}


@dataclass
class Request:
    """Jobs that are pushed together."""

    nodes: list[Node]
    own: bool
    """All under ids of their own: so it is sent until somebody says that it was taken."""
    pause_s: float


@dataclass
class Flow:
    """All of one."""

    number: int
    requests: list[Request]
    act: Act
    act_s: float
    closing: Node | None = None
    """What waits for the group."""
    closed_twice: bool = False

    @property
    def group(self) -> str | None:
        """Its name, where it is one."""
        return self.closing.group if self.closing else None

    def nodes(self) -> Iterator[Node]:
        """All of them."""
        for request in self.requests:
            for node in request.nodes:
                yield from node.whole()
        if self.closing:
            yield self.closing


class Planner:
    """Makes up one after the other."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._n, self._flows = itertools.count(1), itertools.count(1)

    def alone(self) -> Flow:
        """A flow of one job that does nothing."""
        number = next(self._flows)
        return Flow(number, [Request([Node(next(self._n), number, "root")], False, 0.0)], "", 0.0)

    def too_late(self, flow: Flow) -> Request:
        """One more member of a group that is closed."""
        return Request([Node(next(self._n), flow.number, "root", group=flow.group)], False, 0.0)

    def flow(self) -> Flow:
        """The next one."""
        source, number = self._source, next(self._flows)
        group = f"g{number}" if source.random() < GROUP_SHARE else None
        act: Act = source.choice(ACTS_OF_GROUPS if group else ACTS) if source.random() < ACT_SHARE else ""
        late = LATE_SHARE if act.endswith("retry") else 0.0
        left, before, requests = source.randint(*NODES), list[Node](), list[Request]()
        for _ in range(source.randint(*REQUESTS)):
            own = source.random() < OWN_SHARE
            size = min(left, source.randint(1, 4))
            here: list[Node] = []
            for _ in range(size):
                # A parent in the same request has an id already where it is one of the pusher's.
                here.append(self._node(number, [*before, *(here if own else ())], own=own, late=late, group=group))
            left, before = left - size, before + here
            if here:
                requests.append(Request(here, own, source.choice(PAUSES_S)))
        flow = Flow(number, requests, act, source.choice(ACTS_S))
        if group is not None:
            flow.closing = self._closing(group, number, [node.n for node in before])
            flow.closed_twice = source.random() < 0.3
        return flow

    def _node(self, flow: int, before: Sequence[Node], *, own: bool, late: float, group: str | None) -> Node:
        source = self._source
        node = self._plain(flow, "root", late=late)
        node.key, node.group = (f"{OWN}{node.n}" if own else None), group
        if before and source.random() < AFTER_SHARE:
            parents = source.sample(before, min(len(before), source.choice(PARENTS)))
            node.how, node.parents = "after", [parent.n for parent in parents]
            self._receives(node, len(parents))
        self._followed(node, late, 1)
        return node

    def _plain(self, flow: int, how: How, *, late: float) -> Node:
        source = self._source
        plan = "late" if source.random() < late else source.choices(*PLANS)[0]
        policy = source.choice(("fail", "cancel", "run"))
        return Node(next(self._n), flow, how, plan, source.choice(MS), keep=source.random() < 0.8, policy=policy)

    def _receives(self, node: Node, parents: int) -> None:
        """Decide how it gets what they give. One that gets nothing else is known by an id of its own alone."""
        source = self._source
        node.one = parents == 1 and node.how == "after" and source.random() < 0.5
        node.wants = source.choice(("", "in", "in"))
        if source.random() < BARE_SHARE and (node.key is not None or node.how in ("then", "group")):
            node.wants, node.plan, node.ms = "all", "ok", 0
            node.key = node.key or f"{OWN}{node.n}"

    def _followed(self, node: Node, late: float, depth: int) -> None:
        source = self._source
        if depth > DEPTH_MAX or source.random() >= FOLLOWED_SHARE * (2 if depth > 1 else 1):
            return
        makes = node.wants != "all" and source.random() < 0.4
        for _ in range(source.choice((1, 1, 2, 3))):
            child = self._plain(node.flow, "made" if makes else "then", late=late)
            child.parents = [node.n]
            child.key = f"{OWN}{child.n}" if source.random() < 0.3 else None
            if not makes:
                self._receives(child, 1)
            self._followed(child, late, depth + 1)
            (node.makes if makes else node.then).append(child)

    def _closing(self, group: str, flow: int, members: list[int]) -> Node:
        node = self._plain(flow, "group", late=0.0)
        node.group, node.parents, node.key = group, members, f"group.{group}"
        self._receives(node, len(members))
        return node
