import signal
from collections.abc import AsyncIterator, Iterator

import hypothesis
import pytest
import structlog

from tests.stalls import guarded

# How long an example takes says more of the machine than of the code: timings are benchmarks, never assertions.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# A shell lets what it starts in the background ignore Ctrl-C, and programs hand that on to those that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


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
