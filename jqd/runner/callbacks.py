"""The daemon's own workers: they deliver callbacks, jobs that tell a URL how another job (the parent) ended.

    parent ends ──▶ CALLBACK is ready ──claim──▶ worker of its tenant ──▶ its own URL, as a web hook of one job

Each tenant that ever had a callback has one such worker, so that no tenant waits for the receivers of others. A
receiver is the URL of a callback, not a worker: if it fails, its tenant's other callbacks are still claimed, and
nothing is unregistered. Callbacks to a host that does not answer are put off here, without an attempt."""

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

CALLBACKS = "callback"  # the kind of setting that names the tenants with callbacks
SLOTS = 32  # callbacks of one tenant in flight at once, from all daemons together
REST_FIRST_S, REST_MAX_S = 1.0, 60.0  # first and longest pause for a host that did not answer
RECEIVERS_MAX = 10_000  # failing receivers that are remembered: those that failed last

Place = tuple[str, str]
"""A tenant, and a receiver's host and port: a receiver that fails for one tenant may still answer another."""


def callback_worker(tenant: str, secret: str) -> Worker:
    """Return the worker that delivers a tenant's callbacks. `secret`: the daemon's callback secret; empty: requests are
    not signed."""
    name = annotate(tenant, CALLBACK)
    return Worker(
        name=CALLBACK,
        id=name,
        url=f"http://{CALLBACK}",  # a placeholder: each job has its own URL
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
    """Return the secret that signs a tenant's callbacks. It is derived from the daemon's `secret`, so that a tenant
    cannot find out the secret of another tenant."""
    if not tenant:
        return secret
    return PREFIX + base64.b64encode(hmac.digest(key_of(secret), tenant.encode(), hashlib.sha256)).decode()


def receiver_of(worker: Worker, job: Job) -> Worker:
    """Return a copy of the callback worker whose URL is the receiver of this callback."""
    return msgspec.structs.replace(worker, url=job.flow.callback if job.flow is not None else worker.url)


def message_id(url: str, argument: bytes) -> str:
    """Return the `webhook-id` of a callback: the same for each attempt to post this argument to this URL."""
    return f"msg_{hashlib.blake2b(url.encode() + b' ' + argument, digest_size=16).hexdigest()}"


class Receivers:
    """Receivers (tenant, host and port) that did not answer callbacks, and when each may be used again."""

    def __init__(self, source: random.Random) -> None:
        self._backoff = Backoff(first_s=REST_FIRST_S, cap_s=REST_MAX_S)
        self._source = source
        self._failed: dict[Place, tuple[int, float]] = {}  # failures in a row, end of the pause

    def wait_s(self, place: Place, now_s: float) -> float:
        """Return for how many more seconds nothing may be sent to a receiver; 0 or less: it may be used now."""
        return self._failed[place][1] - now_s if place in self._failed else 0.0

    def failed(self, place: Place, now_s: float) -> None:
        """Note that a receiver did not answer, and begin a pause. Failures during a pause do not count again."""
        failures, until_s = self._failed.pop(place, (0, now_s))
        if until_s <= now_s:
            failures, until_s = failures + 1, now_s + self._backoff.delay_s(failures + 1, self._source)
        self._failed[place] = failures, until_s
        if len(self._failed) > RECEIVERS_MAX:
            del self._failed[next(iter(self._failed))]

    def answered(self, place: Place) -> None:
        """Note that a receiver (`place`: its tenant, host and port) answered, which ends its pause."""
        self._failed.pop(place, None)
