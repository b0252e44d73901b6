"""The way between one daemon and the store: calls may wait, fail, lose their answer, or be done after all gave up.

A call is sent, done by the store, and answered. Each step may fail by itself:

    sent ──▶ never comes                  StoreAway, nothing was done
         ──▶ done ──▶ answered
                  ──▶ the answer is lost  StoreAway, it was done
         ──▶ done late                    StoreAway first; it is done seconds after that
"""

import inspect
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import trio

from jqd.domain.errors import StoreAway, StoreError
from jqd.testing.store import FakeStore

TIMEOUT_S = 1.0  # a client's patience, shorter than the real one as leases are
PROMPT_S = 0.01  # what an ordinary call may take
ORDINARY = 0.2  # share of ordinary calls that take time at all: the others come and go in one moment
LATE_S = 6.0  # after which nothing of a call that was given up is on its way any more


@dataclass(slots=True)
class Weather:
    """How the way to the store is now, for everybody."""

    away: bool = False
    """Nobody reaches it."""
    lost: float = 0.0
    """Share of calls that are lost, or their answers."""
    late: float = 0.0
    """Share of calls that are done after their caller gave up."""
    slow_s: float = 0.0
    """What a call may take at most, each way."""


class Link:
    """The store as one life of a daemon sees it: `jqd.store.Store`, through the weather."""

    def __init__(
        self,
        store: FakeStore,
        *,
        source: random.Random,
        weather: Weather,
        spawn: Callable[..., None],
        note: Callable[..., None],
        moment: Callable[[str], bool],
        sending: Callable[[str, Any], Any],
        told: Callable[[str, Any, Any, Any], None],
        lag_s: Callable[[str], float],
    ) -> None:
        """Everything here is of the world: `spawn` starts a task of it, for calls whose caller is gone.

        `moment` is told of each point a call comes to; True: wait a turn. `sending`: of each call that is sent, its
        name and arguments. `told`: of each that the store did, and what `sending` said; None of one that was given up.
        `lag_s`: what a call may take besides.
        """
        self.cut = False
        """This daemon alone does not reach it."""
        self.dead = False
        """The daemon is gone: nothing of it comes to the store any more, and no answer to it."""
        self._store = store
        self._source = source
        self._weather = weather
        self._spawn = spawn
        self._note = note
        self._moment = moment
        self._sending = sending
        self._told = told
        self._lag_s = lag_s

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **named: Any) -> Any:
            return await self._call(name, method, args, named)

        self.__dict__[name] = call
        return call

    def is_broken(self) -> bool:
        """Whether nothing comes through, in either direction."""
        return self.dead or self.cut or self._weather.away

    async def _call(self, name: str, method: Any, args: Any, named: Any) -> Any:
        sent = self._sending(name, args)
        if self._moment(f"before {name}"):
            await trio.lowlevel.checkpoint()
        await self._end_if_dead()
        source, weather = self._source, self._weather
        if self.is_broken():
            await self._give_up(name, "the store cannot be reached")
        fate = source.random()
        if fate < weather.lost / 2:
            await self._give_up(name, "the request was lost")
        if fate > 1 - weather.late:
            self._spawn(self._do_late, name, method, args, named)
            await self._give_up(name, "the request is on its way yet")
        if lag_s := self._lag_s(name):
            await trio.sleep(source.uniform(0.0, lag_s))
        await self._travel()
        if self.is_broken():
            await self._give_up(name, "the way to the store broke")
        try:
            answer = await method(*args, **named)
        except StoreError as error:
            self._note("refused", name, type(error).__name__)
            raise
        self._note("done", name)
        if named.get("renew", True):  # else it was a look
            self._told(name, args, answer, sent)
        if self._moment(f"after {name}"):
            await trio.lowlevel.checkpoint()
        await self._end_if_dead()
        await self._travel()
        if self.is_broken() or fate < weather.lost:
            await self._give_up(name, "the answer was lost")
        return answer

    async def _travel(self) -> None:
        slow_s = self._weather.slow_s
        if slow_s:
            await trio.sleep(self._source.uniform(0.0, slow_s))
        elif self._source.random() < ORDINARY:
            await trio.sleep(self._source.uniform(0.0, PROMPT_S))

    async def _end_if_dead(self) -> None:
        if self.dead:
            await trio.lowlevel.checkpoint()  # here all of it ends, for it is cancelled
            raise StoreAway("this process is gone")  # so that whoever waits shielded ends, too

    async def _give_up(self, name: str, why: str) -> None:
        await self._end_if_dead()
        self._note("failed", name, why)
        # Half of the failures are noticed at once (a reset), the others by time.
        await trio.sleep(0.0 if self._source.random() < 0.5 else TIMEOUT_S)
        raise StoreAway(f"{name}: {why}")

    async def _do_late(self, name: str, method: Any, args: Any, named: Any) -> None:
        await trio.sleep(TIMEOUT_S + self._source.uniform(0.0, LATE_S - TIMEOUT_S))
        if self._weather.away:
            return
        try:
            answer = await method(*args, **named)
        except StoreError as error:
            self._note("refused late", name, type(error).__name__)
        else:
            self._note("done late", name)
            if named.get("renew", True):
                self._told(name, args, answer, None)
