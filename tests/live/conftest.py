from collections.abc import Iterator

import pytest

from tests.live.harness import LEASE, Daemon, short_directory
from tests.valkey import valkey


@pytest.fixture(scope="session")
def shared_daemons() -> Iterator[tuple[Daemon, Daemon]]:
    """Two of one store, for all tests that leave nothing behind that another would notice."""
    with valkey() as server, short_directory() as base:
        flags = ("--store", server.url)
        with Daemon(base / "one", *flags, env=LEASE) as one, Daemon(base / "two", *flags, env=LEASE) as two:
            yield one, two
            assert (one.stop(), two.stop()) == (0, 0)


@pytest.fixture(scope="session")
def shared_daemon(shared_daemons: tuple[Daemon, Daemon]) -> Daemon:
    """The one that such tests talk to. Whatever they push, either may run: what a worker says holds for both."""
    return shared_daemons[0]
