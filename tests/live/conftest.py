from collections.abc import Iterator

import pytest

from tests.live.harness import Daemon, pair


@pytest.fixture(scope="session")
def shared_daemons() -> Iterator[tuple[Daemon, Daemon]]:
    """Two of one store, for all tests that leave nothing behind that another would notice."""
    with pair() as (_, one, two, _):
        yield one, two
        assert (one.stop(), two.stop()) == (0, 0)


@pytest.fixture(scope="session")
def shared_daemon(shared_daemons: tuple[Daemon, Daemon]) -> Daemon:
    """The one that such tests talk to. Whatever they push, either may run: what a worker says holds for both."""
    return shared_daemons[0]
