"""The folders of contexts: whatever code does to them, nothing above them is touched, and its worker goes on."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from jqd.code.config import CodeConfig
from jqd.code.launch import NotStarted, remove, start
from tests.code.conftest import handler


def test_what_is_gone_changes_no_rights_above_it(tmp_path: Path) -> None:
    """As /tmp: its worker may be root."""
    tmp_path.chmod(0o755)
    remove(tmp_path / "gone")
    assert tmp_path.stat().st_mode & 0o777 == 0o755


@pytest.mark.skipif(os.getuid() == 0, reason="root may delete whatever rights it has")
def test_folders_without_rights_in_each_other_are_deleted(tmp_path: Path) -> None:
    home = tmp_path / "home"
    inner = home / "a" / "b" / "c"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent, inner.parent.parent, home):
        folder.chmod(0)
    remove(home)
    assert not home.exists()


def test_what_cannot_be_deleted_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **said: Any) -> None:
        raise RecursionError("so deep")

    monkeypatch.setattr(shutil, "rmtree", fail)
    (tmp_path / "home").mkdir()
    remove(tmp_path / "home")


async def test_a_folder_of_folders_that_was_tidied_up_is_made_anew(bench: Any, tmp_path: Path) -> None:
    """By the machine, after ten idle days, or by the code itself."""
    async with bench() as at:
        assert (await at.one(handler("sh", 'rm -rf "$(dirname "$HOME")"; echo 200 first'))).result == "first"
        assert (await at.one(handler("sh", "echo 200 second"))).result == "second"


def test_a_disk_that_takes_no_folder_is_no_jobs_fault(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.write_text("in its place")
    with pytest.raises(NotStarted, match="no folder can be made"):
        start(["true"], CodeConfig(daemons=[]), base, lang="sh", fds=())
