from collections.abc import Iterator

import pytest

from tests.directories import short_directory
from tests.live.harness import Daemon, Process


@pytest.fixture(scope="package")
def url() -> Iterator[str]:
    """A real daemon with the example worker."""
    with short_directory() as base, Daemon(base / "d") as daemon:
        args = ["worker", "jqd.worker.demo", "--daemon", daemon.url, "--name", "demo"]
        with Process(args, base / "worker.log") as worker:
            daemon.wait_worker("echo")
            yield daemon.url
            assert worker.stop() == 0
        assert daemon.stop() == 0
