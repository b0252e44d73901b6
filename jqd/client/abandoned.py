"""Lets async code make blocking read calls, each in a thread. If the task is cancelled, its thread sends no more
requests."""

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

import anyio
import anyio.to_thread

R = TypeVar("R")

_abandoned: ContextVar[threading.Event | None] = ContextVar("jqd_abandoned", default=None)


async def look(call: Callable[..., R], *args: object, limiter: anyio.CapacityLimiter | None = None) -> R:
    """Call a blocking function in a thread and return its result. If the task is cancelled, it does not wait for the
    thread, which ends after its present request. `limiter`: limits the number of such threads."""
    abandoned = threading.Event()
    token = _abandoned.set(abandoned)  # the thread gets a copy of this context
    try:
        return await anyio.to_thread.run_sync(call, *args, abandon_on_cancel=True, limiter=limiter)
    finally:
        abandoned.set()
        _abandoned.reset(token)


def is_abandoned() -> bool:
    """Return whether the task for which this thread works was cancelled, so that nobody waits for the result."""
    abandoned = _abandoned.get()
    return abandoned is not None and abandoned.is_set()
