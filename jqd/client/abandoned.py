"""Runs blocking read calls for async code in a thread, which stops asking when the task is cancelled."""

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

import anyio
import anyio.to_thread

R = TypeVar("R")

_abandoned: ContextVar[threading.Event | None] = ContextVar("jqd_abandoned", default=None)


async def look(call: Callable[..., R], *args: object, limiter: anyio.CapacityLimiter | None = None) -> R:
    """Return what `call` returns in a thread. After a cancellation the thread ends by itself, with its long poll."""
    abandoned = threading.Event()
    token = _abandoned.set(abandoned)  # the thread gets a copy of this context
    try:
        return await anyio.to_thread.run_sync(call, *args, abandon_on_cancel=True, limiter=limiter)
    finally:
        abandoned.set()
        _abandoned.reset(token)


def is_abandoned() -> bool:
    """Return whether the task that called `look` for this thread was cancelled."""
    abandoned = _abandoned.get()
    return abandoned is not None and abandoned.is_set()
