"""GET /metrics: this daemon's counters, and the exact numbers of the store, for Prometheus."""

from collections import Counter
from itertools import chain

import trio
from prometheus_client import ProcessCollector

from jqd.api.context import ApiContext
from jqd.api.siblings import SCRAPE_S, labelled
from jqd.domain.array_split import Steps, in_steps
from jqd.domain.errors import StoreAway, StoreRefused
from jqd.http import Request, Response
from jqd.metrics import common, work
from jqd.metrics.common import Common
from jqd.metrics.exposition import END, OPEN, PLAIN, Format, chosen, render
from jqd.metrics.families import gauges
from jqd.metrics.meter import Meter
from jqd.service import Services
from jqd.service.health import Takers, health, why_waiting
from jqd.store import TypeView

UP = "jqd_process_up", "1 while that process of `jqd serve --processes` answers the one that was asked, else 0"
KINDS = (PLAIN.kind, (OPEN.kind,))
_one_at_a_time = trio.CapacityLimiter(1)  # its own: 40,000 samples take half a second, and large answers wait for none
_process = ProcessCollector(registry=None)
"""Memory, processor time and open files of this process; of thousands of files it takes a while."""


async def metrics(parts: ApiContext, request: Request) -> Response:
    """Metrics of daemon and store, as Prometheus text or OpenMetrics. Not for a tenant's tokens."""
    services, form = parts.services, chosen(request.headers.get("accept", ""))
    meter = services.feature(Meter)
    labels = ("tenant", "type") if meter.config.tenants else ("type",)
    common_now = await _read(services, meter, request)
    meter.tally.settle()
    of_daemon = [*meter.own()]

    def render_all() -> bytes:
        ours = work.families(meter.totals, labels)
        return render(chain(of_daemon, ours, common.families(common_now, labels), _process.collect()), form)

    own = await trio.to_thread.run_sync(render_all, limiter=_one_at_a_time)
    return Response(200, await _of_all(parts, request, own, form) if parts.siblings.asked(request) else own, form.kind)


async def _of_all(parts: ApiContext, request: Request, own: bytes, form: Format) -> bytes:
    """Return the metrics of all processes that share the port, as one document. Each sample has the label `process`."""
    found = {parts.siblings.process.number: own} | await parts.siblings.ask(request, request.path, form.kind, SCRAPE_S)
    rows = [((str(number),), isinstance(document, bytes)) for number, document in sorted(found.items())]
    head = render([gauges(*UP, ("process",), rows)], form)
    documents = {number: document for number, document in sorted(found.items()) if isinstance(document, bytes)}
    return head.removesuffix(END) + await trio.to_thread.run_sync(labelled, documents) + (END if form is OPEN else b"")


async def _read(services: Services, meter: Meter, request: Request) -> Common:
    found = Common(daemons=services.control.daemons())
    takers = Takers()
    await in_steps(takers.add(services.workers.list()), request.breathe)
    await in_steps(_workers(services, found), request.breathe)
    try:
        found.store = await services.store.stats()
        views = await services.store.list_types()
    except (StoreAway, StoreRefused):
        found.store = None  # `jqd_store_up` is then 0
    else:
        why: dict[str, str] = {}
        await in_steps(_stalled(services, views, takers, why), request.breathe)
        now_ms = services.clock.wall_ms()
        found.types = await trio.to_thread.run_sync(common.by_label, views, meter.config, now_ms, why)
    return found


def _workers(services: Services, found: Common) -> Steps[None]:
    states: Counter[str] = Counter()
    for worker in services.workers.list():
        how = health(services, worker)
        states[how.state] += 1
        found.slots += worker.max_jobs if how.takes_jobs else 0
        yield
    found.workers = states


def _stalled(services: Services, views: list[TypeView], takers: Takers, why: dict[str, str]) -> Steps[None]:
    for view in views:
        if view.oldest_ms and (reason := why_waiting(services, view.jobtype, takers=takers)) is not None:
            why[view.jobtype] = reason.reason.value
        yield
