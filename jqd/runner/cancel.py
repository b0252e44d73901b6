"""Sends workers the cancels of their running jobs, each by the protocol of its worker.

A worker need not obey a cancel: the job stays in flight until its worker reports it or its timeout is over. The cancel
travels on another connection than the job and may overtake it. So it is repeated if the worker does not know the job,
or could not be reached. It may also arrive so late that the job has ended, got other content and runs there again. So a
cancel names the claim (store to runner) or the batch (runner to worker) that it is for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from jqd.domain.log import get_logger
from jqd.runner.delivery import Delivery, DeliveryContext
from jqd.runner.transport import Post

SEND_S = 2.0  # for one request, from connecting to its answer: the worker has only to take note
# Pauses before each repetition: a second, so that its signature differs, or a worker takes it for a replayed request.
AGAIN_S = (1.0, 1.0)
SENDERS = 32  # requests at once, to all workers together
SENDERS_EACH = 4  # of these to one worker, so that one that does not answer leaves senders for the others
ASKED_MAX = 1_000  # cancels remembered of jobs that are not in flight: the answer to their claim may be on its way

log = get_logger("runner")


class Teller:
    """Sends workers the cancels of their jobs, to a bounded number of workers at once."""

    def __init__(self, shared: DeliveryContext) -> None:
        self._shared = shared
        self._tellers = trio.CapacityLimiter(SENDERS)
        self._by_worker: dict[str, trio.CapacityLimiter] = {}

    async def send_cancel(self, post: Post, delivery: Delivery, job_id: str) -> None:
        """Send the worker the cancel of one job. Repeat it a few times while it fails and the job still runs there."""
        for pause_s in (0.0, *AGAIN_S):
            await trio.sleep(pause_s)
            async with self._one_of(delivery.worker.id), self._tellers:
                if self._shared.deliveries.get(job_id) is not delivery:
                    return
                if await self._send_once(post, delivery, job_id):
                    return

    @asynccontextmanager
    async def _one_of(self, worker_id: str) -> AsyncIterator[None]:
        limiter = self._by_worker.setdefault(worker_id, trio.CapacityLimiter(SENDERS_EACH))
        try:
            async with limiter:
                yield
        finally:
            if not limiter.borrowed_tokens:  # nobody holds it, so nobody waits for it either
                self._by_worker.pop(worker_id, None)

    async def _send_once(self, post: Post, delivery: Delivery, job_id: str) -> bool:
        """Send the cancel of one job to the worker that has it, once. Returns False if the caller has to repeat it: the
        worker did not answer, failed, or does not know the job (404)."""
        assert delivery.sent is not None, "what was not sent is withdrawn instead"
        answer = await post.cancel(delivery.sent, job_id, at_ms=self._shared.clock.wall_ms(), within_s=SEND_S)
        if answer is None:
            return True
        status, why = answer
        if 200 <= status < 300:
            self._shared.counters.cancels_sent += 1
            return True
        log.info("runner.cancel_not_sent", job_id=job_id, worker=delivery.worker.id, status=status, why=why)
        return 400 <= status < 500 and status != 404
