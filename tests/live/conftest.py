from collections.abc import Iterator

import pytest

from tests.live.harness import Daemon, short_directory


@pytest.fixture(scope="session")
def shared_daemon() -> Iterator[Daemon]:
    """One daemon for all tests that leave nothing behind that another would notice."""
    with short_directory() as base, Daemon(base / "d") as daemon:
        yield daemon
        assert daemon.stop() == 0
