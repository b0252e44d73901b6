"""Finding an app by its address, and the messages when it is not there."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jqd.worker.load import AppNotFound, chosen, load_app

MODULE = """
import jqd
app = jqd.App()
empty = jqd.App()
class shop:
    jobs = app
@app.job()
def one(): ...
number = 3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "shopjobs.py").write_text(MODULE)
    (tmp_path / "lonelyjobs.py").write_text("number = 3")
    (tmp_path / "otherjobs.py").write_text(MODULE.replace("app", "queue"))
    (tmp_path / "brokenjobs.py").write_text("import there_is_no_such_module")
    (tmp_path / "raisingjobs.py").write_text("raise RuntimeError('at import')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


@pytest.mark.parametrize("target", ["pack.shopjobs", "pack.shopjobs:app", "pack.shopjobs:shop.jobs", "otherjobs:queue"])
def test_an_app_is_found(target: str) -> None:
    assert list(load_app(target).jobs) == ["one"]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("nowherejobs", "there is no module 'nowherejobs'; looked in .* Run the worker from the folder"),
        ("pack.nowhere:app", "there is no module 'pack.nowhere'"),
        ("otherjobs.py", "'otherjobs.py' is no module name. Write MODULE or MODULE:APP, with dots and without .py"),
        ("pack/shopjobs.py", "is no module name"),
        ("shop-jobs:app", "is no module name. Write MODULE or MODULE:APP"),
        ("", "is no module name"),
        ("otherjobs", "has no 'app'; it has queue, empty: write otherjobs:queue"),
        ("lonelyjobs", "has no 'app'; it has no App at all"),
        ("pack.shopjobs:number", "is a int, not a jqd.App"),
        ("pack.shopjobs:empty", "has no jobs; decorate a function with @empty.job"),
    ],
)
def test_what_is_not_found_is_named(target: str, says: str) -> None:
    with pytest.raises(AppNotFound, match=says):
        load_app(target)


def test_an_error_of_the_module_itself_comes_through() -> None:
    with pytest.raises(ModuleNotFoundError, match="there_is_no_such_module"):
        load_app("brokenjobs")
    with pytest.raises(RuntimeError, match="at import"):
        load_app("raisingjobs")


def test_some_jobs_of_an_app_are_chosen_by_name() -> None:
    jobs = load_app("pack.shopjobs").jobs
    assert (list(chosen(jobs, ())), list(chosen(jobs, ["one"]))) == (["one"], ["one"])
    with pytest.raises(AppNotFound, match=r"--jobs: the app has no job 'ones'; did you mean 'one'\?"):
        chosen(jobs, ["one", "ones"])
