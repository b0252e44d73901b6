"""The daemon's own workers: they deliver callbacks, jobs that tell a URL how another job ended.

    parent ends ──▶ CALLBACK is ready ──claim──▶ worker of its tenant ──▶ its own URL, as a web hook of one job

Each tenant that ever had a callback has one such worker, so that no tenant waits for the receivers of others. A
receiver is not a
worker: it is neither backed off by the store's claims nor taken out. What waits for a host that does not answer is put
off here, without an attempt.
"""

import base64
import hashlib
import hmac
import random

import msgspec

from jqd.domain.backoff import Backoff
from jqd.domain.flow import CALLBACK
from jqd.domain.job import Job
from jqd.domain.signature import PREFIX, key_of
from jqd.domain.tenant import annotate
from jqd.runner.ssrf import AddressPolicy
from jqd.runner.worker import Worker

CALLBACKS = "callback"  # of rules: tenants that have callbacks
SLOTS = 32  # callbacks of one tenant on their way at once, from all daemons together
REST_FIRST_S, REST_MAX_S = 1.0, 60.0  # nothing is sent to a host that did not answer
RECEIVERS_MAX = 10_000  # places that are remembered for it; of more those that failed last

Place = tuple[str, str]
"""A tenant, and host and port: what fails for one tenant, as its look-ups do, may answer another."""


def callback_worker(tenant: str, secret: str) -> Worker:
    """Return the daemon's worker of a tenant's callbacks. `secret`: the daemon's; empty: nothing is signed."""
    name = annotate(tenant, CALLBACK)
    return Worker(
        name=CALLBACK,
        id=name,
        url=f"http://{CALLBACK}",  # it stands for all of them: each job has its own
        jobs=(name,),
        max_jobs=SLOTS,
        style="webhook",
        secrets=(secret_of(tenant, secret),) if secret else (),
        registered_at_ms=0,
        handler=name,
        standing=AddressPolicy.CALLBACK,
        tenant=tenant,
    )


def secret_of(tenant: str, secret: str) -> str:
    """Return the secret of a tenant's callbacks: whoever knows it can make none of another tenant's."""
    if not tenant:
        return secret
    return PREFIX + base64.b64encode(hmac.digest(key_of(secret), tenant.encode(), hashlib.sha256)).decode()


def receiver_of(worker: Worker, job: Job) -> Worker:
    """Return the worker as it stands for the receiver of one callback."""
    return msgspec.structs.replace(worker, url=job.flow.callback if job.flow is not None else worker.url)


def message_id(url: str, argument: bytes) -> str:
    """Return the `webhook-id` of a callback: the same whenever the same end is posted to a URL again."""
    return f"msg_{hashlib.blake2b(url.encode() + b' ' + argument, digest_size=16).hexdigest()}"


class Receivers:
    """Hosts and ports that did not answer a tenant, and until when nothing of it is sent there."""

    def __init__(self, source: random.Random) -> None:
        self._backoff = Backoff(first_s=REST_FIRST_S, cap_s=REST_MAX_S)
        self._source = source
        self._failed: dict[Place, tuple[int, float]] = {}  # failures in a row, until when it rests

    def wait_s(self, place: Place, now_s: float) -> float:
        """Return for how many seconds nothing is to be sent to a place."""
        return self._failed[place][1] - now_s if place in self._failed else 0.0

    def failed(self, place: Place, now_s: float) -> None:
        """Note that a request was not answered. Those that were under way together count once."""
        failures, until_s = self._failed.pop(place, (0, now_s))
        if until_s <= now_s:
            failures, until_s = failures + 1, now_s + self._backoff.delay_s(failures + 1, self._source)
        self._failed[place] = failures, until_s
        if len(self._failed) > RECEIVERS_MAX:
            del self._failed[next(iter(self._failed))]

    def answered(self, place: Place) -> None:
        """Note that a receiver answered: requests may go there at once again."""
        self._failed.pop(place, None)
