"""What clients do: they push, cancel, change and look, each through a daemon, and note what they are answered."""

import math
from collections.abc import Callable
from typing import Any

import msgspec
import trio

from jqd.api.large_bodies import answer_any
from jqd.api.problems import as_problem
from jqd.api.v1.groups import close
from jqd.api.v1.job_actions import delete_many, edit, retry, run_now
from jqd.api.v1.jobs import delete_job, get_job
from jqd.api.v1.push import push
from jqd.domain.errors import JqdError
from jqd.domain.jobid import partition_of
from jqd.http import Request, RequestHead, Response
from tests.simulation.check import History
from tests.simulation.flow_plan import Group
from tests.simulation.loop import start_in
from tests.simulation.matter import AGAIN, DELETE, EDIT, OTHER, PUSH, REPLACE, RETRY, Matter, Order
from tests.simulation.node import Node
from tests.simulation.plan import Plan
from tests.simulation.word import Tale, Word
from tests.simulation.work import Push, body_of, own_id_of

MSGPACK = {"content-type": "application/msgpack"}
NOBODY = -1  # in place of a status: no daemon was there to be asked


class Clients:
    """All of them. The one of a plain job asks its daemon only, the others whoever is there."""

    def __init__(self, plan: Plan, history: History, nodes: list[Node]) -> None:
        self._plan = plan
        self._history = history
        self._nodes = nodes

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """All that is planned."""
        async with trio.open_nursery() as nursery:
            for each in self._plan.pushes:
                nursery.start_soon(self._push, each)
            for matter in self._plan.matters:
                nursery.start_soon(self._see_through, matter)
            for group in self._plan.groups:
                for at_s, index in group.closes:
                    nursery.start_soon(self._close, group, at_s, index)

    # ------------------------------------------------------------ plain jobs

    async def _push(self, planned: Push) -> None:
        await trio.sleep_until(planned.at_s)
        node, numbers, history = self._nodes[planned.node], planned.numbers, self._history
        works = [self._plan.works[number] for number in numbers]
        for number, work in zip(numbers, works, strict=True):
            story = history.stories[number]
            story.tried, story.due_s = True, trio.current_time() + work.delay_s
        bodies = [body_of(self._plan.works, number) | self._after(number) for number in numbers]
        status, body = await _ask(node, push, _request("POST", "/v1/jobs", bodies))
        history.note("pushed", node.name, numbers, max(0, status))
        if status != 201:
            for number in numbers:
                history.kin.refused(number, status, node.name)
            return
        ids = [history.kin.ids.get(job_id, job_id) for job_id in msgspec.msgpack.decode(body)["job_ids"]]
        async with trio.open_nursery() as cancels:
            for number, job_id, work in zip(numbers, ids, works, strict=True):
                history.acked(number, job_id, node.name)
                for after_s, through in work.cancels:
                    cancels.start_soon(self._cancel, after_s, through, number, job_id)
                for what, orders in (("retried", work.retries), ("deleted", work.deletes)):
                    for after_s, through in orders:
                        cancels.start_soon(self._again, what, after_s, through, number, job_id)
                for after_s in work.hurries_s:
                    cancels.start_soon(self._hurry, after_s, planned.node, number, job_id)

    def _after(self, number: int) -> dict[str, object]:
        """What is said of its parents that were acknowledged; nobody knows the ids of others."""
        work, stories = self._plan.works[number], self._history.stories
        parents = [parent for parent in work.after if stories[parent].acked_at_s < math.inf]
        self._history.awaiting.pushed(number, parents)
        works = self._plan.works
        ids = [own_id_of(p) if work.by_name and works[p].own_id else stories[p].job_id for p in parents]
        return {"after": ids, "on_parent_failure": work.on_parent_failure} if ids else {}

    async def _hurry(self, after_s: float, index: int, number: int, job_id: str) -> None:
        await trio.sleep(after_s)
        node, history = self._nodes[index], self._history
        history.stories[number].hurried = True
        status, _ = await _ask(node, run_now, _request("POST", f"/v1/jobs/{job_id}/run-now"), job_id)
        history.note("hurried", node.name, number, max(0, status))

    async def _again(self, what: str, after_s: float, index: int, number: int, job_id: str) -> None:
        """Somebody wants it tried anew, or deleted."""
        await trio.sleep(after_s)
        node, history = self._nodes[index], self._history
        story, now_s = history.stories[number], trio.current_time()
        last = max((attempt.fence for attempt in story.attempts), default=0)
        (story.retries if what == "retried" else story.deletes).append(now_s)
        if what == "retried":
            status, _ = await _ask(node, retry, _request("POST", f"/v1/jobs/{job_id}/retry"), job_id)
        else:
            wanted = {"job_ids": [job_id], "state": ["succeeded", "failed", "cancelled"]}
            status, _ = await _ask(node, delete_many, _request("POST", "/v1/jobs/delete", wanted))
        history.note(what, node.name, number, max(0, status))
        if what == "retried" and status == 200:
            history.awaiting.retried(story, node.name, last)

    async def _close(self, group: Group, at_s: float, index: int) -> None:
        """A group, and again where it was not answered."""
        await trio.sleep_until(at_s)
        node, history, works = self._nodes[index], self._history, self._plan.works
        story, work = history.stories[group.then], works[group.then]
        members = [s.number for s in history.stories.values() if works[s.number].group == group.name]
        acked = [number for number in members if history.stories[number].acked_at_s < math.inf]
        history.awaiting.closing(group.then, acked)
        story.tried = True
        wanted = {"then": body_of(works, group.then), "on_parent_failure": work.on_parent_failure}
        path = f"/v1/groups/{group.name}/close"
        status, _ = await _ask(node, close, _request("POST", path, wanted), group.name)
        history.note("closed", node.name, group.name, max(0, status))
        if status == 200:
            history.acked(group.then, history.kin.ids[f"group.{group.name}"], node.name)

    async def _cancel(self, after_s: float, index: int, number: int, job_id: str) -> None:
        await trio.sleep(after_s)
        node, history = self._nodes[index], self._history
        history.stories[number].cancels.append((trio.current_time(), node.name))
        status, _ = await _ask(node, delete_job, _request("DELETE", f"/v1/jobs/{job_id}"), job_id)
        history.note("cancelled", node.name, number, max(0, status))
        if status == 204:
            history.cancelled(number, node.name)
        if status >= 500 and self._plan.absent not in (None, partition_of(job_id, self._plan.partitions)):
            history.wrong(f"held up: the cancel of job {number} was answered {status} by {node.name}")

    # ------------------------------------------------------------ jobs whose content changes

    async def _see_through(self, matter: Matter) -> None:
        tale = self._history.tales[matter.number]
        await trio.sleep_until(matter.at_s)
        answered = trio.Event()
        answered.set()
        async with trio.open_nursery() as nursery:
            for order in matter.orders:
                if order.waits:
                    await answered.wait()
                await trio.sleep(order.after_s)
                answered = trio.Event()
                nursery.start_soon(self._order, tale, order, answered)

    async def _order(self, tale: Tale, order: Order, answered: trio.Event) -> None:
        matter = tale.matter
        for place in range(len(self._nodes)):
            node = self._nodes[(order.node + place) % len(self._nodes)]
            if (order.what == PUSH or matter.name or tale.job_id) and _is_there(node):
                word = tale.asked(order, node.name)
                await self._say(tale, order, word, node)
                break
        answered.set()

    async def _say(self, tale: Tale, order: Order, word: Word, node: Node) -> None:
        matter, job_id = tale.matter, tale.matter.name or tale.job_id
        path = f"/v1/jobs/{job_id}"
        match order.what:
            case what if what in (PUSH, AGAIN, OTHER, REPLACE):
                body = self._plan.works[order.content].body(order.content)
                named = {"job_id": matter.name, "replace": what == REPLACE} if matter.name else {}
                status, answer = await _ask(node, push, _request("POST", "/v1/jobs", body | named))
                if status == 201 and not matter.name:
                    tale.job_id = msgspec.msgpack.decode(answer)["job_id"]
            case what if what == EDIT:
                date = {"delay": order.delay_s} if order.delay_s else {"run_at": None}
                given = {"argument": order.content, "priority": order.content} | date
                status, _ = await _ask(node, edit, _request("PATCH", path, given), job_id)
            case what if what == RETRY:
                status, _ = await _ask(node, retry, _request("POST", f"{path}/retry"), job_id)
            case what if what == DELETE:
                status, _ = await _ask(node, delete_job, _request("DELETE", path), job_id)
            case _:
                status, answer = await _ask(node, get_job, _request("GET", path, accept=True), job_id)
                seen = msgspec.msgpack.decode(answer) if status == 200 else {}
                tale.looked(word, max(0, status), seen.get("priority"), seen.get("state", ""))
                return
        tale.answered(word, max(0, status))


def _is_there(node: Node) -> bool:
    life = node.life
    return life is not None and not life.dead and life.requests is not None and not life.stop.is_set()


async def _ask(node: Node, handler: Callable[..., Any], request: Request, *args: str) -> tuple[int, bytes]:
    """What the daemon answers; 0: nothing, for it goes away meanwhile; NOBODY: it is not there."""
    if not _is_there(node):
        return NOBODY, b""
    life = node.life
    assert life is not None
    assert life.requests is not None
    answered = trio.Event()
    answer = [0, b""]

    async def serve() -> None:
        edge: Any = life.daemon.api  # type: ignore[union-attr]
        try:
            said = await handler(edge.parts, request, *args)
            response = (
                said if isinstance(said, Response) else await answer_any(edge.parts, said, request.answer_language())
            )
        except JqdError as error:
            status, body = as_problem(error).status, b""
        else:
            status, body = response.status, response.body
        if not life.dead:
            answer[:] = [status, body]
        answered.set()

    start_in(life.label, life.requests, _then(serve, answered))
    await answered.wait()
    return answer[0], answer[1]  # type: ignore[return-value]


def _then(serve: Callable[[], Any], answered: trio.Event) -> Callable[[], Any]:
    async def served() -> None:
        try:
            await serve()
        finally:
            answered.set()  # also when the process went away under it

    return served


def _request(method: str, path: str, body: object = None, *, accept: bool = False) -> Request:
    headers = dict(MSGPACK) if body is not None else {}
    if accept:
        headers["accept"] = MSGPACK["content-type"]
    return Request(
        RequestHead(method, path, path, b"", headers), body=b"" if body is None else msgspec.msgpack.encode(body)
    )
