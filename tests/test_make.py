"""What `make` says and does before anything is installed."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
# Stands in for a Python: says what it was asked, and makes a virtual environment that holds itself.
PYTHON = """#!/bin/sh
echo "$0 $@" >>{log}
if [ "$1 $2" = "-m venv" ]; then mkdir -p .venv/bin && cp {python} .venv/bin/python; fi
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with what `make setup` reads, and a stand-in for Python."""
    folder = tmp_path / "clone"
    folder.mkdir()
    (folder / "Makefile").write_text((ROOT / "Makefile").read_text())
    for name in ("requirements.txt", "pyproject.toml"):
        (folder / name).touch()
    python = tmp_path / "python"
    python.write_text(PYTHON.format(log=tmp_path / "log", python=python))
    python.chmod(0o755)
    return folder


def setup(folder: Path, python: Path | str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"]}
    args = ["make", "-C", str(folder), "--no-print-directory", "setup", f"PYTHON={python}"]
    return subprocess.run(args, env=env, capture_output=True, text=True, check=False)


def test_a_folder_that_was_moved_gets_a_new_environment(clone: Path, tmp_path: Path) -> None:
    assert setup(clone, tmp_path / "python").returncode == 0
    old = clone / ".venv" / "bin" / "ruff"
    old.touch()
    log = tmp_path / "log"
    asked = log.read_text()
    assert setup(clone, tmp_path / "python").returncode == 0
    assert log.read_text() == asked, "nothing was done again"
    moved = clone.rename(tmp_path / "elsewhere")
    again = setup(moved, tmp_path / "python")
    assert again.returncode == 0
    assert "was moved" in again.stdout
    assert not (moved / ".venv" / "bin" / "ruff").exists(), "what holds the old path is gone"
    assert log.read_text().count("-m venv .venv") == 2


def test_no_python_is_said_with_what_to_do(clone: Path) -> None:
    ended = setup(clone, "python-of-nobody")
    assert ended.returncode != 0
    assert "there is no python-of-nobody here. Install one, or name it: make PYTHON=" in ended.stderr
    assert not (clone / ".venv").exists()


def test_the_image_gets_versions_that_the_suite_ran_with() -> None:
    """`make lock` writes both files. What is there for one system or Python only may stand in one of them alone."""
    pins = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)
    whole, image = (
        set(pins.findall((ROOT / name).read_text())) for name in ("requirements.txt", "requirements-all.txt")
    )
    assert image - whole == set()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    brought = [
        extras["dependencies"],
        *(extras["optional-dependencies"][name] for name in ("cli", "worker", "daemon", "embedded")),
    ]
    named = {canonicalize_name(Requirement(each).name) for some in brought for each in some} - {"jqd"}
    assert named - {name for name, _ in image} == set(), "run `make lock`"


def test_each_file_that_make_names_is_there() -> None:
    """A target that names one that is gone runs no test at all."""
    said = subprocess.run(
        ["make", "-n", "slow", "campaign"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    named = {word for word in said.split() if re.fullmatch(r"tests/[\w/]+(\.py)?", word)}
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
