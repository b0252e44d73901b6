"""Threads done in place: a clock that jumps when all tasks wait must not jump while one works in a thread."""

from collections.abc import Callable
from typing import Any

import pytest
import trio


@pytest.fixture(autouse=True)
def threads_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory disk answers at once anyway."""

    async def run_sync(call: Callable[..., Any], *args: Any, **_: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return call(*args)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_sync)
