from collections.abc import Iterator

import pytest

from tests.live.harness import ROOT, Daemon, Process, pair


@pytest.fixture(scope="package")
def shared_daemons() -> Iterator[tuple[Daemon, Daemon]]:
    """Two of one store, for all tests that leave nothing behind that another would notice."""
    with pair() as (_, one, two, _):
        yield one, two
        assert (one.stop(), two.stop()) == (0, 0)


@pytest.fixture(scope="package")
def shared_daemon(shared_daemons: tuple[Daemon, Daemon]) -> Daemon:
    """The one that such tests talk to. Whatever they push, either may run: what a worker says holds for both."""
    return shared_daemons[0]


@pytest.fixture(scope="package")
def flowing_worker(tmp_path_factory: pytest.TempPathFactory, shared_daemon: Daemon) -> Iterator[None]:
    """Of `flowing.py`, at the daemons that tests share."""
    log = tmp_path_factory.mktemp("flowing") / "log"
    args = ["worker", "tests.live.flowing", "--daemon", shared_daemon.url, "--concurrency", "8"]
    with Process(args, log, cwd=ROOT) as worker:
        shared_daemon.wait_worker("show")
        yield
        assert worker.stop() == 0, log.read_text()
