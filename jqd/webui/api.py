"""The UI's API client for each session. Pages with the same rights share its answers.

Many pages may be open, and each repeats its calls every second. Equal calls are made once, and the answer is shared for
`SHARED_S`, so that 500 equal pages cost a daemon no more than one.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from jqd.client import AsyncClient, ClientClosed, Forbidden, JqdClientError
from jqd.domain.clock import Clock

SHARED_S = 0.9  # just less than the second after which pages ask again
ANSWERS_MAX = 1_000  # kept at once, some KB each
ANSWERS_CHARS_MAX = 8_000_000  # of all that are kept, written as text: some 30 MB of memory
UNAUTHORIZED = 401  # no token, or one that is not valid any more


def has_ended(error: Exception) -> bool:
    """Return whether an API error means that a login is over: its token is invalid, or its client was closed."""
    return isinstance(error, ClientClosed) or (isinstance(error, Forbidden) and error.status == UNAUTHORIZED)


@dataclass
class Asked:
    """Counts the API calls that this UI sent to a daemon inside a block of `counting`."""

    calls: int = 0


_asked: ContextVar[Asked | None] = ContextVar("asked", default=None)


@contextmanager
def counting() -> Iterator[Asked]:
    """Yield a counter of the API calls sent to a daemon inside the block. Calls answered from the cache do not
    count."""
    asked = Asked()
    before = _asked.set(asked)
    try:
        yield asked
    finally:
        _asked.reset(before)


def note_call() -> None:
    if (asked := _asked.get()) is not None:
        asked.calls += 1


@dataclass
class _Answer:
    asked_at_s: float
    kept_s: float
    arrived: trio.Event = field(default_factory=trio.Event)
    body: dict[str, Any] | None = None
    error: JqdClientError | None = None
    chars: int = 0
    """Size of the answer, written as text."""


class Answers:
    """Cache of answers: of API calls, or whole pages. Each is kept for its time; there are at most `most`, and at most
    ANSWERS_CHARS_MAX characters in all: then the oldest are dropped."""

    def __init__(self, clock: Clock, most: int = ANSWERS_MAX) -> None:
        self._clock, self._most = clock, most
        self._kept: OrderedDict[object, _Answer] = OrderedDict()

    async def get(
        self, key: object, ask: Callable[[], Awaitable[dict[str, Any]]], kept_s: float = SHARED_S
    ) -> dict[str, Any]:
        """Return the cached answer for `key` if it is at most `kept_s` old, and wait for it if its call is under way.
        Otherwise call `ask`, and cache the answer. Raises the JqdClientError of the call."""
        while True:
            now_s = self._clock.mono_s()
            found = self._kept.get(key)
            if found is None or found.asked_at_s + kept_s < now_s:
                return await self._ask(key, ask, kept_s)
            await found.arrived.wait()
            if found.error is not None:
                raise found.error
            if found.body is not None:
                return found.body
            # The visitor that asked has gone before the answer came, or its login has ended: ask for this visitor.

    def forget(self) -> None:
        """Empty the cache after a change, so that pages show its effect."""
        self._kept.clear()

    async def _ask(self, key: object, ask: Callable[[], Awaitable[dict[str, Any]]], kept_s: float) -> dict[str, Any]:
        mine = self._kept[key] = _Answer(self._clock.mono_s(), kept_s)
        self._kept.move_to_end(key)
        self._drop_old()
        try:
            mine.body = await ask()
            mine.chars = len(repr(mine.body))
            self._drop_surplus()
        except JqdClientError as error:
            mine.error = None if has_ended(error) else error
            raise
        finally:
            if mine.body is None and mine.error is None and self._kept.get(key) is mine:
                del self._kept[key]
            mine.arrived.set()
        return mine.body

    def _drop_old(self) -> None:
        now_s = self._clock.mono_s()
        self._kept = OrderedDict(
            (key, each) for key, each in self._kept.items() if each.asked_at_s + each.kept_s >= now_s
        )
        self._drop_surplus()

    def _drop_surplus(self) -> None:
        chars = sum(each.chars for each in self._kept.values())
        while chars > ANSWERS_CHARS_MAX or len(self._kept) > self._most:
            chars -= self._kept.popitem(last=False)[1].chars


class Api:
    """API client with the rights of one session."""

    def __init__(self, client: AsyncClient, answers: Answers, identity: object) -> None:
        """`identity`: a value that stands for the session's rights in cache keys. Sessions with equal identities share
        answers."""
        self.client = client
        self.identity = identity
        self._answers = answers

    async def _ask(self, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        note_call()
        return await self.client.in_thread(call, abandon=True)

    async def get(self, path: str, kept_s: float = SHARED_S, /, **params: Any) -> dict[str, Any]:
        """Return the answer of a GET, from the cache if it is at most `kept_s` old. Raises JqdClientError."""
        key = (self.identity, path, tuple(sorted((name, str(value)) for name, value in params.items())))
        ask = partial(self.client.client.ask, path, **params)
        return await self._answers.get(key, partial(self._ask, ask), kept_s)

    async def ready(self) -> dict[str, Any]:
        """Return the readiness of the daemon, perhaps from the cache. Raises JqdClientError."""
        return await self._answers.get((self.identity, "ready"), partial(self._ask, self.client.client.ready))

    async def put(self, path: str, body: dict[str, Any], **params: Any) -> dict[str, Any]:
        """Send a PUT, without retries. Returns the decoded answer. Raises JqdClientError."""
        return await self.client.in_thread(partial(self.client.client.ask, path, method="PUT", body=body, **params))

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a POST, without retries. Returns the decoded answer. Raises JqdClientError."""
        return await self.client.in_thread(partial(self.client.client.ask, path, method="POST", body=body))

    def speaking_for(self, tenant: str) -> "Api":
        """Return an `Api` that acts for one tenant: its calls mean the names and ids of this tenant. The daemon checks
        whether the token may act for the tenant."""
        return Api(self.client.speaking_for(tenant), self._answers, (self.identity, tenant))

    def close(self) -> None:
        self.client.client.close()


async def together(**calls: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
    """Run calls concurrently; return their answers by name. The first JqdClientError cancels the other calls; it is
    raised itself, not in an ExceptionGroup."""
    found: dict[str, Any] = {}
    errors: list[JqdClientError] = []

    async def one(name: str, call: Callable[[], Awaitable[Any]]) -> None:
        try:
            found[name] = await call()
        except JqdClientError as error:
            errors.append(error)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for name, call in calls.items():
            nursery.start_soon(one, name, call)
    if errors:
        raise errors[0]
    return found
