"""A test that fails once is tried again and named; one that fails twice, or one of many, has failed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.again import FLAKY_MAX

ROOT = Path(__file__).parents[1]
# Fails as long as the file `calm` is not there: it makes that when it fails.
ONCE = """
from pathlib import Path

def test_{n}():
    calm = Path("calm{n}")
    if not calm.exists():
        calm.touch()
        raise AssertionError("once")
"""
EVER = "\ndef test_ever():\n    assert not 'ever'\n"


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Of Python, there."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("tests", "code", "said"),
    [
        (ONCE.format(n=1) + ONCE.format(n=2), 0, "FLAKY, to be mended: test_it.py::test_2 failed once"),
        (ONCE.format(n=1) + EVER, 1, ""),
        ("".join(ONCE.format(n=n) for n in range(FLAKY_MAX + 1)), 1, f"{FLAKY_MAX + 1} tests failed"),
    ],
    ids=["once", "twice", "many"],
)
def test_up_to_three_may_fail_once(tmp_path: Path, tests: str, code: int, said: str) -> None:
    (tmp_path / "test_it.py").write_text(tests)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long\n")
    assert run(tmp_path, "pytest", "-q", "test_it.py").returncode == 1
    again = run(tmp_path, "tests.again")
    assert again.returncode == code, again.stdout + again.stderr
    assert said in again.stderr


def test_without_a_failed_test_it_fails_as_well(tmp_path: Path) -> None:
    assert run(tmp_path, "tests.again").returncode == 1, "the run ended for another reason"
