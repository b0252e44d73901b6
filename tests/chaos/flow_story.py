"""Histories of flows written by hand, to be judged by the checker."""

from collections.abc import Callable, Sequence
from typing import Any

from tests.chaos.flow_check import check
from tests.chaos.story import Story
from tests.chaos.verdict import Verdict


class FlowStory(Story):
    """Writes a history by hand. A job's id is that of `Story`, or of a follower `f` and its n."""

    def node(self, n: int, how: str = "root", parents: Sequence[int] = (), *, flow: int = 1, **fields: Any) -> None:
        """One job of a flow, as it was thought of."""
        told = {"plan": "ok", "key": None, "wants": "", "one": False, "keep": True, "policy": "fail", "group": None}
        self.add("node", 0.0, n=n, how=how, parents=[*parents], flow=flow, **told | fields)

    def ends(self, n: int, t: float, state: str = "succeeded", *, job: str = "", got: Any = None, **fields: Any) -> int:
        """It runs at `t` and ends, and stands so at the end; the number of its start."""
        job = job or f"j{n:04}"
        fence = self.claim(job, t - 0.01)
        self.run(job, t, n=n, outcome={"succeeded": "ok"}.get(state, state), got=got, **fields)
        told = self._counts
        self.settle(job, t + 0.15, fence, state)
        self.stands(n, state, job=job)
        return told

    def stands(self, n: int, state: str, failed: str = "", *, job: str = "", key: str | None = None) -> None:
        """How a job is found at the end; the last time counts."""
        job = job or f"j{n:04}"
        self.events = [e for e in self.events if (e.get("e"), e.get("job")) != ("stands", job)]
        self.add("stands", 90.0, job=job, key=key, n=n, state=state, failed=failed, server=0)

    def act(self, act: str, t: float, *, flow: int = 1, status: int = 200, final: bool = False) -> None:
        """Something is done to a flow."""
        self._counts += 1
        self.add("act_invoke", t, number=self._counts, act=act, flow=flow, final=final)
        self.add("act_end", t + 0.05, number=self._counts, status=status)

    def chain(self, **fields: Any) -> int:
        """Jobs 1 and 2, of which 2 waits for 1, that has done well at 10.1; the number of its start."""
        self.node(1)
        self.node(2, "after", [1], **fields)
        self.push(1, 9.0)
        self.push(2, 9.1)
        return self.ends(1, 10.0)

    def group(self, closed_t: float = 10.5, **fields: Any) -> None:
        """Jobs 4 and 5, members of g2 that have done well at 11.1, and 6, that waits for them, and has not come."""
        for n in (4, 5):
            self.node(n, flow=2, group="g2")
            self._counts += 1
            job = {"n": n, "sha": "", "name": "step", "plan": "ok", "delay_s": 0, "priority": 1}
            self.add("push_invoke", 10.0, push=self._counts, daemon="daemon-0", jobs=[job], group="g2")
            self.add("push_ok", 10.1, push=self._counts, ids=[f"j{n:04}"])
            self.ends(n, 11.0)
        self.node(6, "group", [4, 5], flow=2, group="g2", key="group.g2", **fields)
        self.act("close", closed_t, flow=2)

    def closing(self, t: float = 12.0, **fields: Any) -> None:
        """Job 6 comes, and does well."""
        self.ends(6, t, **fields)


def verdict(plant: Callable[[FlowStory], Any]) -> Verdict:
    """What the checker says of a history."""
    story = FlowStory()
    plant(story)
    story.add("healed", 70.0)
    story.add("drained", 80.0)
    story.add("rested", 85.0)
    return check(story.events)
