"""Fixtures for pytest, available wherever jqd is installed. jqd is only imported when a test uses one of them.

jqd_app       a `Trial`: the app that the setting `jqd_app` names, without a daemon; `@pytest.mark.jqd("inline")`
jqd_daemon    a `Server`: a real daemon in a temporary directory, one for each process of the test run
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jqd.testing.server import Server
    from jqd.testing.trial import Trial


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings of the fixtures, for pyproject.toml or pytest.ini."""
    parser.addini("jqd_app", "MODULE:APP, the jqd.App that the fixture jqd_app tests")
    parser.addini("jqd_store", "URL of a store for the fixture jqd_daemon; without it the daemon keeps one of its own")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `jqd`."""
    config.addinivalue_line("markers", 'jqd(mode, raises=False): how the fixture jqd_app runs jobs, "fake" or "inline"')


@pytest.fixture
def jqd_app(request: pytest.FixtureRequest) -> "Iterator[Trial]":
    """Yield a `Trial` of the app that the setting `jqd_app` names: by `testing("fake")`, or `testing` with the
    arguments of the marker `jqd`."""
    from jqd.worker.load import load_app

    target = request.config.getini("jqd_app")
    if not target:
        raise pytest.UsageError('the fixture jqd_app needs a setting: write jqd_app = "MODULE:APP" in pytest\'s')
    mark = request.node.get_closest_marker("jqd")
    with load_app(target).testing(*(mark.args if mark else ()), **(mark.kwargs if mark else {})) as trial:
        yield trial


@pytest.fixture(scope="session")
def _jqd_server(request: pytest.FixtureRequest) -> "Iterator[Server]":
    """Yield the daemon that all tests of this process share."""
    from jqd.testing.server import open_server

    store = request.config.getini("jqd_store")
    # A short path, as the embedded store has a socket there: pytest's own directories may be too deep.
    with tempfile.TemporaryDirectory(prefix="jqd-") as path:
        directory = Path(path)
        # Its own prefix, to leave other data in that store alone. Losing the tests' jobs does no harm.
        settings = {"JQD_STORE__PREFIX": directory.name} if store else {}
        with open_server(directory, *(("--store", store, "--i-accept-loss") if store else ()), settings=settings) as it:
            yield it


@pytest.fixture
def jqd_daemon(_jqd_server: "Server", monkeypatch: pytest.MonkeyPatch) -> "Server":
    """Return a real daemon, which all tests of this process share. During the test `JQD_URL` has its URL."""
    monkeypatch.setenv("JQD_URL", _jqd_server.url)
    monkeypatch.delenv("JQD_TOKEN", raising=False)
    return _jqd_server
