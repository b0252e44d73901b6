"""Registers a worker at a daemon: registers, repeats this in time, registers again if the daemon forgot it, unregisters
at the end.

    away ──201/200──► known ──every ttl/3──► known
      ▲                 │ any other answer, or none, and no other daemon of the store takes it either
      └──── back-off ───┘

The daemon forgets a worker that does not repeat its registration within `ttl_s`, so a killed worker disappears.

A worker makes its own id and sends it to all its daemons. These daemons share one store, so they know it as the same
worker and share its slots. If a daemon does not answer, the worker registers at another daemon of the store; a daemon's
answer names them.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any

import httpx2
import msgspec
import trio

from jqd.client.trust import trouble_of_tls
from jqd.domain import address
from jqd.domain.backoff import Backoff
from jqd.domain.log import get_logger
from jqd.domain.media import MSGPACK, language_of

TTL_S_DEFAULT = 30.0  # daemons post to a killed worker for at most this long; a busy daemon may take seconds to answer
CALL_TIMEOUT_S = 5.0  # of one registration: small messages to a daemon near by
TTL_PULL_S = 12.0  # a killed worker disappears soon after its jobs run elsewhere; one registration may time out
# Daemons asked instead of one that is away: each may take CALL_TIMEOUT_S, all together less than the ttl.
OTHERS_MAX = 5
REFUSALS_MAX = 5  # of a token, in a row: some seconds by BACKOFF; all daemons know a new token within two
LEAVE_TIMEOUT_S = 2.0  # to unregister; if it fails, the ttl ends the registration
OF_ROLE = "says that this token is of the role "  # one that may not work, as GET /v1/me says
REFUSED = ("answered 401", "answered 403", OF_ROLE)  # the token is unknown, or lacks the right
OF_THE_TOKEN = ("answered 401", "answered 403: this token")  # refusals for which another token helps
ANOTHER = (
    "give it another token, of the role worker and for its jobs (JQD_TOKEN, JQD_TOKEN_FILE): `jqd tokens create worker`"
    " makes one"
)
NO_DAEMON = "which is no answer of a daemon: look at its URL, and for a proxy"
BACKOFF = Backoff(first_s=0.5, factor=2.0, cap_s=10.0)  # a daemon that comes back is found within ten seconds


Spec = Callable[[], Mapping[str, Any]]
"""Returns the present body of `POST /v1/workers`, except `worker_id` and the number of slots."""


class Slots:
    """What the registrations of one worker at its daemons have in common: the number of slots, and whether the token is
    refused."""

    def __init__(self, max_jobs: Callable[[], int], batch: int) -> None:
        """`max_jobs`: returns the number of slots, which may change when code is loaded again. `batch`: the most jobs
        in a request."""
        self._max_jobs, self._batch = max_jobs, batch
        self._places: list[Registration] = []
        self._was_taken = False
        self.refused = trio.Event()
        """Set when every daemon has refused the token REFUSALS_MAX times in a row, and none has ever accepted it."""

    def taken(self) -> None:
        self._was_taken = True

    def give_up(self) -> None:
        """Check whether all daemons keep refusing the token; if so, set `refused`. Once a daemon has accepted the
        worker this has no effect, as a daemon that recovers may know the token again."""
        if not self._was_taken and all(place.refusal for place in self._places):
            self.refused.set()

    def join(self, place: "Registration") -> None:
        self._places.append(place)

    def spec(self) -> dict[str, int]:
        return {"max_jobs": self._max_jobs(), "batch": self._batch}

    def other_accepted(self, of: "Registration") -> "Registration | None":
        """Return a registration of this worker, other than `of`, that a daemon has accepted; None: there is none."""
        return next((place for place in self._places if place is not of and place.is_known), None)

    def changed(self) -> None:
        """Register again at all daemons now, because the registration has changed."""
        for place in self._places:
            place.hurry()


class Registration:
    """The registration of a worker at one daemon. While that daemon is unavailable, another daemon of the store takes
    its place."""

    def __init__(
        self,
        daemon: str,
        spec: Spec,
        slots: Slots,
        *,
        worker_id: str,
        http: httpx2.AsyncClient,
        source: random.Random,
        ttl_s: float = TTL_S_DEFAULT,
    ) -> None:
        self.daemon = self._home = daemon.rstrip("/")
        """URL of the daemon that accepted the registration last; at first the given one."""
        self.is_away = False
        """Whether no daemon accepted the last registration. False before the first one."""
        self._others: list[str] = []
        """URLs of other daemons of the store, as the last answer named them."""
        self.worker_id = worker_id
        self.is_known = False
        """Whether a daemon accepted the last registration."""
        self.refusal = ""
        """The last refusal, once the token was refused REFUSALS_MAX times in a row. Empty again when it is accepted."""
        self._refusals = 0  # of the token, in a row
        self.trouble: str | None = None
        """Why the last registration failed; None: it succeeded."""
        self._spec = spec
        self._slots = slots
        self._hurry = trio.Event()
        self._http = http
        self._source = source
        self._ttl_s = ttl_s
        self._troubles: dict[str, str | None] = {}
        self._log = get_logger("worker")
        slots.join(self)

    def hurry(self) -> None:
        self._hurry.set()

    @property
    def answering(self) -> str:
        """Return the URL of a daemon that knows the worker and so takes its outcomes. If none does, return that of the
        daemon that last accepted this registration."""
        other = None if self.is_known else self._slots.other_accepted(self)
        return self.daemon if other is None else other.daemon

    async def run(self) -> None:
        """Register, and repeat the registration, until cancelled."""
        failures = 0
        while True:
            was_known, self._hurry = self.is_known, trio.Event()
            trouble = self.trouble = await self._renew()
            self.is_away = trouble is not None
            if trouble is None:
                failures = 0
                self.accepted()
                with trio.move_on_after(self._ttl_s / 3):
                    await self._hurry.wait()
                continue
            self.is_known = False
            if trouble.startswith("answered") and was_known:
                continue  # the daemon lives but has forgotten the worker: register anew at once
            failures += 1
            self.failed(trouble)
            await trio.sleep(BACKOFF.delay_s(failures, self._source))

    def accepted(self) -> None:
        """Note that the daemon has accepted the token."""
        self._refusals, self.refusal = 0, ""
        self._slots.taken()

    def failed(self, trouble: str) -> None:
        """Note that a call failed, and why. After REFUSALS_MAX refusals of the token in a row it counts as refused
        here."""
        self._refusals = self._refusals + 1 if trouble.startswith(REFUSED) else 0
        if self._refusals >= REFUSALS_MAX:
            self.refusal = trouble
            self._slots.give_up()

    async def leave(self) -> None:
        """Unregister, if registered. A daemon that cannot be reached forgets the worker after its ttl."""
        if not self.is_known:
            return
        self.is_known, worker_id = False, self.worker_id
        try:
            with trio.fail_after(LEAVE_TIMEOUT_S):
                await self._http.delete(f"{self.daemon}/v1/workers/{worker_id}")
        except (httpx2.HTTPError, trio.TooSlowError) as error:
            self._log.info("worker.not_unregistered", daemon=self.daemon, worker_id=worker_id, error=repr(error))
            return
        self._log.info("worker.unregistered", daemon=self.daemon, worker_id=worker_id)

    async def _renew(self) -> str | None:
        """Register at the configured daemon. If it is unavailable, and the worker has no other valid registration, try
        other daemons of the store. Returns None if one accepted the worker; else why the configured daemon did not."""
        trouble = await self._register(self._home)
        if trouble is None or not _is_away(trouble) or self._slots.other_accepted(self):
            return trouble
        for daemon in self._others:
            if await self._register(daemon) is None:
                return None
        return trouble

    async def _register(self, daemon: str) -> str | None:
        """Register at one daemon. Returns None if it accepted the worker, else why not. Logs the reason if it differs
        from the last one."""
        spec = {**self._spec(), **self._slots.spec(), "worker_id": self.worker_id}
        headers = {"content-type": MSGPACK, "accept": MSGPACK}
        try:
            # Shielded: a worker that stops while it registers must get the answer, or it could not unregister.
            with trio.CancelScope(shield=True), trio.fail_after(CALL_TIMEOUT_S):
                answer = await self._http.post(
                    f"{daemon}/v1/workers", content=msgspec.msgpack.encode(spec), headers=headers
                )
            trouble = self._take(daemon, answer)
        except (httpx2.HTTPError, trio.TooSlowError) as error:
            trouble = trouble_of_tls(daemon, error) or f"not reached: {type(error).__name__} {error}".rstrip()
        if trouble is not None and trouble != self._troubles.get(daemon):
            self._log.warning("worker.not_registered", daemon=daemon, trouble=trouble)
        self._troubles[daemon] = trouble
        return trouble

    def _take(self, daemon: str, answer: httpx2.Response) -> str | None:
        answered = _decode(answer)
        if answer.status_code not in (200, 201):
            return f"answered {answer.status_code}: {_detail(answer, answered)}"
        worker_id = answered.get("worker_id") if isinstance(answered, dict) else None
        if not isinstance(worker_id, str) or not worker_id:
            return f"answered {answer.status_code} without a worker_id; is it a jqd daemon?"
        if worker_id != self.worker_id or not self.is_known or daemon != self.daemon:
            self._log.info("worker.registered", daemon=daemon, worker_id=worker_id)
        self._others = self._safe(answered.get("urls"))
        self.worker_id, self.is_known, self.daemon = worker_id, True, daemon
        return None

    def _safe(self, urls: Any) -> list[str]:
        """Return up to OTHERS_MAX of `urls` (other daemons, as an answer named them) in random order, so that workers
        do not all go to the same daemon when theirs is unavailable.

        If the configured daemon uses TLS, only URLs with TLS are returned, because the token is sent there.
        """
        given = [url.rstrip("/") for url in urls if isinstance(url, str)] if isinstance(urls, list) else []
        secure = self._home.startswith("https:")
        others = {url for url in given if address.is_http(url) and (not secure or url.startswith("https:"))}
        others.discard(self._home)
        return self._source.sample(sorted(others), k=min(len(others), OTHERS_MAX))


def _is_away(trouble: str) -> bool:
    """Return whether `trouble`, the reason why a registration failed, means that the daemon could not be reached or
    answered 5xx. Then another daemon may accept the registration."""
    return not trouble.startswith("answered") or trouble.startswith("answered 5")


def _decode(answer: httpx2.Response) -> Any:
    as_json = language_of(answer.headers.get("content-type", "")) == "json"
    try:
        return msgspec.json.decode(answer.content) if as_json else msgspec.msgpack.decode(answer.content)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _detail(answer: httpx2.Response, answered: Any) -> str:
    detail = answered.get("detail") or answered.get("title") if isinstance(answered, dict) else None
    if not detail and answer.status_code in (401, 403):
        return f"{answer.reason_phrase}, {NO_DAEMON}"
    return str(detail or answer.reason_phrase)


def advice_on(refusal: str) -> str:
    """Return advice on a refusal, for people; empty if its own text says what to do."""
    return ANOTHER if refusal.startswith(OF_THE_TOKEN) and not refusal.endswith(NO_DAEMON) else ""
