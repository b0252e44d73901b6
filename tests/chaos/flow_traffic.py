"""The workload of flows: pushes them here and there, closes their groups, and cancels and retries some."""

import itertools
import random
import time
from typing import Any

import httpx2
import msgspec
import trio

from jqd.domain.errors import StoreError
from jqd.domain.jobid import partition_of, partition_of_name
from jqd.store import EdgeStore, JobView
from tests.chaos.cluster import Cluster, History
from tests.chaos.flow_plan import Flow, Node, Planner, Request
from tests.chaos.workload import CALL_S, LOOKERS, MSGPACK, PUSH_S, Settings

JOBS_PER_RATE = 50  # plain jobs pushed in the time of one flow: each has some ten jobs, most wait, and all are watched
LATE_S = (0.5, 5.0)  # for so long a late step fails
AGAIN_S = (0.1, 1.0)
PATIENCE_S = 60.0  # until a push or a close that must be taken is given up, once all is well again
ACT_TRIES = 4
REST_S = 1.5  # in which nothing ends: then nothing is on its way
PAGE = 500
FOLLOWERS_BYTES = 1 << 20


class Flows:
    """See Workload."""

    def __init__(self, settings: Settings, cluster: Cluster, history: History, http: httpx2.AsyncClient) -> None:
        self._planner = Planner(random.Random(settings.seed + 1))
        self._source = random.Random(settings.seed + 4)
        self._pause_s = JOBS_PER_RATE / settings.rate
        self._cluster, self._history, self._http = cluster, history, http
        self._pushes, self._acts = itertools.count(1), itertools.count(1)
        self._late: list[tuple[int, str]] = []
        """Flows, and ids of their steps that failed at first: in the end they are tried anew."""
        self._fail_until_s = 0.0
        """By the monotonic clock, as workers read it: from then on no late step fails."""
        self._rested = -1, 0.0
        self._end_t = 0.0

    async def prepare(self) -> None:
        """There is nothing."""

    async def run(self, seconds: float) -> None:
        """See Workload."""
        due_t = trio.current_time()
        self._end_t = due_t + seconds
        async with trio.open_nursery() as nursery:
            while trio.current_time() < self._end_t:
                nursery.start_soon(self._flow, self._planner.flow())
                due_t += self._pause_s
                await trio.sleep(max(0.0, due_t - trio.current_time()))

    async def last_words(self) -> list[str]:
        """See Workload."""
        ids: list[str] = []
        for i in range(len(self._cluster.daemons)):
            (request,) = self._plan(self._planner.alone()).requests
            told = await self._push_once(i, request.nodes, [request.nodes[0].spec({}, 0.0)])
            ids += told.values() if isinstance(told, dict) else ()
        return ids

    async def is_over(self, store: EdgeStore) -> bool:
        """Whether no follower is on its way."""
        told = await store.stats()
        ended = told.ended + told.dead
        if ended != self._rested[0]:
            self._rested = ended, trio.current_time()
        for number in range(len(self._cluster.servers)):
            if (await store.at(number).get_outbox(1, FOLLOWERS_BYTES)).entries:
                self._rested = -1, 0.0
        return self._rested[0] >= 0 and trio.current_time() >= self._rested[1] + REST_S

    async def once_more(self) -> bool:
        """Try all flows anew that have steps which failed at first: now they do well."""
        flows = {flow: [job_id for number, job_id in self._late if number == flow] for flow, _ in self._late}
        waiting = iter(flows.items())
        await trio.sleep(max(0.0, self._fail_until_s - time.monotonic()))  # all may be over before

        async def retry() -> None:
            for flow, ids in waiting:  # one after the other: two at once would see the half of each other
                for job_id in ids:
                    await self._act("flow_retry", flow, f"/v1/jobs/{job_id}/flow/retry", final=True)

        async with trio.open_nursery() as nursery:
            for _ in range(LOOKERS):
                nursery.start_soon(retry)
        self._rested = -1, 0.0
        return bool(self._late)

    async def last_look(self, store: EdgeStore) -> None:
        """Every job in the store."""
        ids: list[tuple[str, str]] = []
        cursor = ""
        while True:
            page = await store.list_jobs(None, None, None, PAGE, cursor)
            ids += [(view.id, view.name) for view in page.jobs]
            if not (cursor := page.cursor):
                break
        waiting = iter(ids)

        async def look() -> None:
            for job_id, name in waiting:
                told: dict[str, Any] = {"job": job_id, "key": name or None, "n": 0, "failed": ""}
                told["server"] = partition_of(job_id, len(self._cluster.servers))
                try:
                    view = await store.get_job(job_id)
                except StoreError as error:
                    self._history.add("stands", state=f"unreadable: {error}", **told)
                    continue
                if isinstance(view, JobView):
                    argument = msgspec.msgpack.decode(view.argument)
                    told["n"] = argument.get("n", 0) if isinstance(argument, dict) else 0
                    told["failed"] = view.flow.failed if view.flow else ""
                self._history.add("stands", state=view.state.value if isinstance(view, JobView) else repr(view), **told)

        async with trio.open_nursery() as nursery:
            for _ in range(LOOKERS):
                nursery.start_soon(look)

    # ------------------------------------------------------------ one flow

    def _plan(self, flow: Flow) -> Flow:
        for node in flow.nodes():
            self._history.add("node", **node.told())
        return flow

    async def _flow(self, flow: Flow) -> None:
        """From its first push to its last word."""
        self._plan(flow)
        ids: dict[int, str] = {}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._act_on, flow, ids)
            for request in flow.requests:
                await trio.sleep(request.pause_s)
                await self._push(request, ids)
            if flow.closing is not None:
                await trio.sleep(self._source.choice((0.0, 0.0, 0.2, 1.0)))
                await self._close(flow, flow.closing)
                if flow.closed_twice:
                    await self._close(flow, flow.closing)
                    late_one = self._planner.too_late(flow)
                    self._history.add("node", **late_one.nodes[0].told())
                    await self._push(late_one, {})
        tops = (node for request in flow.requests for node in request.nodes if node.n in ids)
        late = [node.n for node in tops if any(each.plan == "late" for each in node.whole())]
        self._late += [(flow.number, ids[n]) for n in late]

    async def _push(self, request: Request, ids: dict[int, str]) -> None:
        """Jobs under ids of their own until somebody says that they were taken; others as long as nothing was sent."""
        until_s = time.monotonic() + self._source.uniform(*LATE_S)
        self._fail_until_s = max(self._fail_until_s, until_s)
        for node in request.nodes:  # of a parent that may have been taken nobody knows the id
            known = {*ids, *(other.n for other in request.nodes)} if request.own else {*ids}
            lost = [parent for parent in node.parents if parent not in known]
            if node.how == "after" and lost:
                node.parents = [parent for parent in node.parents if parent in known]
                node.how = "after" if node.parents else "root"
                node.wants = node.wants if node.parents else ""
                self._history.add("node", **node.told())
        own = {node.n: node.key for node in request.nodes if node.key is not None}
        jobs = [node.spec({**ids, **own}, until_s) for node in request.nodes]
        end_t = max(self._end_t, trio.current_time()) + PATIENCE_S
        order = self._source.sample(range(len(self._cluster.daemons)), len(self._cluster.daemons))
        for i in itertools.cycle(order):
            taken = await self._push_once(i, request.nodes, jobs)
            if isinstance(taken, dict):
                ids.update(taken)
                return
            if taken is False or (not request.own and taken is None) or trio.current_time() >= end_t:
                return
            await trio.sleep(self._source.uniform(*AGAIN_S))

    async def _push_once(self, i: int, nodes: list[Node], jobs: list[dict[str, Any]]) -> dict[int, str] | bool | None:
        """Ids of what was taken. True: nothing was sent; False: it is refused; None: nobody knows."""
        number, servers = next(self._pushes), len(self._cluster.servers)
        told = [
            {"n": node.n, "sha": "", "name": "step", "plan": node.plan, "delay_s": 0, "priority": 1, "key": node.key}
            | {"server": partition_of_name(node.key or "step", servers)}
            for node in nodes
        ]
        group = nodes[0].group
        self._history.add("push_invoke", push=number, daemon=f"daemon-{i}", jobs=told, group=group)
        try:
            answer = await self._http.post(
                f"{self._cluster.urls[i]}/v1/jobs",
                content=msgspec.msgpack.encode(jobs),
                headers=MSGPACK,
                timeout=PUSH_S,
            )
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            self._history.add("push_fail", push=number, why=repr(error))
            return True
        except httpx2.TransportError as error:
            self._history.add("push_info", push=number, why=repr(error))
            return None
        if answer.status_code not in (200, 201):
            refused = 400 <= answer.status_code < 500
            self._history.add(
                "push_fail" if refused else "push_info", push=number, why=f"{answer.status_code} {answer.text[:200]}"
            )
            return False if refused else None
        ids: list[str] = answer.json()["job_ids"]
        self._history.add("push_ok", push=number, ids=ids)
        return {node.n: job_id for node, job_id in zip(nodes, ids, strict=True)}

    async def _close(self, flow: Flow, node: Node) -> None:
        """Until some daemon says that it is closed."""
        body = {"then": node.spec({}, 0.0), "on_parent_failure": node.policy}
        end_t = max(self._end_t, trio.current_time()) + PATIENCE_S
        while trio.current_time() < end_t:
            status = await self._act("close", flow.number, f"/v1/groups/{flow.group}/close", body, tries=1)
            if status == 200 or 400 <= status < 500:
                return
            await trio.sleep(self._source.uniform(*AGAIN_S))

    # ------------------------------------------------------------ what is done to it

    async def _act_on(self, flow: Flow, ids: dict[int, str]) -> None:
        if not flow.act:
            return
        await trio.sleep(flow.act_s)
        while not ids and trio.current_time() < self._end_t:
            await trio.sleep(AGAIN_S[0])
        if not ids:
            return
        late = [node.n for node in flow.nodes() if node.plan == "late" and node.n in ids]
        n = self._source.choice(late or sorted(ids))
        if flow.act == "cancel":
            await self._cancel(ids[n])
        else:
            kind, _, verb = flow.act.rpartition("_")
            path = f"/v1/groups/{flow.group}/{verb}" if kind == "group" else f"/v1/jobs/{ids[n]}"
            await self._act(flow.act, flow.number, path if kind == "group" else f"{path}/{flow.act.replace('_', '/')}")

    async def _act(
        self, act: str, flow: int, path: str, body: Any = None, *, tries: int = ACT_TRIES, final: bool = False
    ) -> int:
        """Ask one daemon, and others while there is no answer; the last status, 0 for none."""
        status = 0
        for _ in range(tries):
            number, i = next(self._acts), self._source.randrange(len(self._cluster.daemons))
            self._history.add("act_invoke", act=act, number=number, flow=flow, path=path, final=final)
            try:
                answer = await self._http.post(self._cluster.urls[i] + path, json=body, timeout=PUSH_S)
            except httpx2.TransportError as error:
                self._history.add("act_end", number=number, status=0, why=repr(error))
            else:
                status = answer.status_code
                self._history.add("act_end", number=number, status=status, why=answer.text[:300])
                is_part = final and status == 200 and answer.json().get("whole") is False  # then people ask again
                if status < 500 and status != 404 and not is_part:  # it may be on its way
                    return status
            await trio.sleep(self._source.uniform(*AGAIN_S))
        return status

    async def _cancel(self, job_id: str) -> None:
        url = self._source.choice(self._cluster.urls)
        self._history.add("cancel_invoke", job=job_id, daemon=f"daemon-{self._cluster.urls.index(url)}")
        try:
            answer = await self._http.delete(f"{url}/v1/jobs/{job_id}", timeout=CALL_S)
        except httpx2.TransportError as error:
            self._history.add("cancel_info", job=job_id, why=repr(error))
            return
        end = "cancel_ok" if answer.status_code == 204 else "cancel_info"
        self._history.add(end, job=job_id, **({} if answer.status_code == 204 else {"why": f"{answer.status_code}"}))
