import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from functools import cache

import httpcore2
import hypothesis
import pytest
import structlog

from jqd.client.environ import URL_DEFAULT, URL_VARIABLE
from tests.stalls import guarded

# How long an example takes says more of the machine than of the code: timings are benchmarks, never assertions. Each
# run draws others; fifty are what each change can pay.
hypothesis.settings.register_profile("untimed", deadline=None, max_examples=50)
hypothesis.settings.load_profile("untimed")

# `httpx2.get` and its like read all authorities anew for each request: 25 ms of the processor, where a page takes one.
httpcore2.default_ssl_context = cache(httpcore2.default_ssl_context)

# A shell lets what it starts in the background ignore Ctrl-C, and programs hand that on to those that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Of eleven thousand tests there are a million objects that live to the end: as often as Python looks for garbage by
# itself, that took a quarter of collecting them, and a sixth of running those in one process.
gc.set_threshold(10_000, 50, 100)
gc.disable()


def pytest_collection_finish() -> None:
    """What was collected stays."""
    gc.freeze()
    gc.enable()


# Somebody may have a daemon of their own on the default port: no test registers workers there, or pushes to it.
DEFAULT_PORT = int(URL_DEFAULT.rpartition(":")[2])
os.environ[URL_VARIABLE] = "http://127.0.0.1:1"  # nothing answers there


def _refuse_default_port(event: str, given: tuple[object, ...]) -> None:
    """As `sys.addaudithook` has it. Raises AssertionError, which no code takes for a daemon that is away."""
    if event in ("socket.connect", "socket.bind"):
        address = given[1]
        if isinstance(address, tuple) and address[1] == DEFAULT_PORT:
            raise AssertionError(f"a test asked for port {DEFAULT_PORT}, which may be somebody's own daemon")


sys.addaudithook(_refuse_default_port)


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Ids must be the same in every process; those that would hold a memory address are not."""
    return argname if " object at 0x" in repr(val) else None


@pytest.fixture(autouse=True)
def log_as_ever() -> Iterator[None]:
    """A command run inside a test sets the log up for its own streams, which end with the test."""
    yield
    structlog.reset_defaults()


@pytest.fixture
async def unstalled() -> AsyncIterator[None]:
    """Fails a test in which a step of the loop is long (tests/stalls.py)."""
    with guarded():
        yield
