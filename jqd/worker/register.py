"""A worker's place at one daemon: register, repeat it in time, register anew when forgotten, leave.

    away ──201/200──► known ──every ttl/3──► known
      ▲                 │ any other answer, or none
      └──── back-off ───┘

The daemon forgets a worker that does not repeat its registration within `ttl_s`, so a killed worker disappears.

The slots of a worker are divided among the daemons that answer (`Slots`). A daemon that does not answer has no share;
when that changes, the others are told of their new share at once.
"""

import random
from collections.abc import Mapping
from typing import Any

import httpx2
import msgspec
import trio

from jqd.client.trust import trouble_of_tls
from jqd.words.backoff import Backoff
from jqd.words.log import get_logger
from jqd.words.media import MSGPACK, language_of

TTL_S_DEFAULT = 30.0  # a killed worker is posted to for at most this long; a daemon may be busy for a few seconds
CALL_TIMEOUT_S = 5.0  # of one registration: small messages to a daemon near by
LEAVE_TIMEOUT_S = 2.0  # of saying goodbye: it is a courtesy, the ttl does it too
BACKOFF = Backoff(first_s=0.5, factor=2.0, cap_s=10.0)  # a daemon that comes back is found within ten seconds


class Slots:
    """The slots of one worker, divided among the daemons that answer."""

    def __init__(self, max_jobs: int, batch: int) -> None:
        self._max_jobs, self._batch = max_jobs, batch
        self._places: list[Registration] = []

    def join(self, place: "Registration") -> None:
        """Give one more daemon a share."""
        self._places.append(place)

    def share(self, of: "Registration") -> dict[str, int]:
        """The share of a daemon that answers. Rounded up, so that all have some: jobs too many wait or are refused."""
        places = sum(place is of or not place.is_away for place in self._places)
        return {"max_jobs": -(-self._max_jobs // places), "batch": -(-self._batch // places)}

    def changed(self, by: "Registration") -> None:
        """A daemon answers again, or no longer: tell all others of their new share."""
        for place in self._places:
            if place is not by:
                place.hurry()


class Registration:
    """One worker at one daemon. `card` is what `POST /v1/workers` takes, without `worker_id` and the share of slots."""

    def __init__(
        self,
        daemon: str,
        card: Mapping[str, Any],
        slots: Slots,
        *,
        http: httpx2.AsyncClient,
        source: random.Random,
        ttl_s: float = TTL_S_DEFAULT,
    ) -> None:
        self.daemon = daemon.rstrip("/")
        self.worker_id: str | None = None
        self.is_away = False
        """The daemon did not answer when it was asked last. False while it was not asked yet."""
        self._card = card
        self._slots = slots
        self._hurry = trio.Event()
        self._http = http
        self._source = source
        self._ttl_s = ttl_s
        self._told: str | None = None
        self._log = get_logger("worker")
        slots.join(self)

    def hurry(self) -> None:
        """Repeat the registration now: the share has changed."""
        self._hurry.set()

    async def run(self) -> None:
        """Stay registered until cancelled."""
        failures = 0
        while True:
            had = self.worker_id
            self._hurry = trio.Event()
            trouble = await self._register()
            if self.is_away != (trouble is not None):
                self.is_away = trouble is not None
                self._slots.changed(self)
            if trouble is None:
                failures = 0
                with trio.move_on_after(self._ttl_s / 3):
                    await self._hurry.wait()
                continue
            self.worker_id = None
            if had is not None and trouble.startswith("answered"):
                continue  # the daemon lives but does not know us any more: register anew at once
            failures += 1
            await trio.sleep(BACKOFF.delay_s(failures, self._source))

    async def leave(self) -> None:
        """Unregister, if registered. A daemon that is not reached notices by the ttl."""
        worker_id, self.worker_id = self.worker_id, None
        if worker_id is None:
            return
        try:
            with trio.fail_after(LEAVE_TIMEOUT_S):
                await self._http.delete(f"{self.daemon}/v1/workers/{worker_id}")
        except (httpx2.HTTPError, trio.TooSlowError) as error:
            self._log.info("worker.not_unregistered", daemon=self.daemon, worker_id=worker_id, error=repr(error))
            return
        self._log.info("worker.unregistered", daemon=self.daemon, worker_id=worker_id)

    async def _register(self) -> str | None:
        """Register; returns None, or what stood in the way. Logs only when that changed."""
        card = {**self._card, **self._slots.share(self)} | ({"worker_id": self.worker_id} if self.worker_id else {})
        headers = {"content-type": MSGPACK, "accept": MSGPACK}
        try:
            # Shielded: a worker that stops while it registers must learn its id, or it could not unregister.
            with trio.CancelScope(shield=True), trio.fail_after(CALL_TIMEOUT_S):
                answer = await self._http.post(
                    f"{self.daemon}/v1/workers", content=msgspec.msgpack.encode(card), headers=headers
                )
            trouble = self._take(answer)
        except (httpx2.HTTPError, trio.TooSlowError) as error:
            trouble = trouble_of_tls(self.daemon, error) or f"not reached: {type(error).__name__} {error}".rstrip()
        if trouble is not None and trouble != self._told:
            self._log.warning("worker.not_registered", daemon=self.daemon, trouble=trouble)
        self._told = trouble
        return trouble

    def _take(self, answer: httpx2.Response) -> str | None:
        if answer.status_code not in (200, 201):
            return f"answered {answer.status_code}: {_detail(answer)}"
        told = _decode(answer)
        worker_id = told.get("worker_id") if isinstance(told, dict) else None
        if not isinstance(worker_id, str) or not worker_id:
            return f"answered {answer.status_code} without a worker_id; is it a jqd daemon?"
        if worker_id != self.worker_id:
            self._log.info("worker.registered", daemon=self.daemon, worker_id=worker_id, url=self._card.get("url"))
        self.worker_id = worker_id
        return None


def _decode(answer: httpx2.Response) -> Any:
    as_json = language_of(answer.headers.get("content-type", "")) == "json"
    try:
        return msgspec.json.decode(answer.content) if as_json else msgspec.msgpack.decode(answer.content)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _detail(answer: httpx2.Response) -> str:
    told = _decode(answer)
    detail = told.get("detail") or told.get("title") if isinstance(told, dict) else None
    return str(detail) if detail else answer.reason_phrase
