"""The folders of contexts: whatever code does to them, nothing above them is touched, and its worker goes on."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from jqd.code import launch, shell
from jqd.code.config import CodeConfig
from jqd.code.launch import NotStarted, start
from tests.code.conftest import handler


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


@pytest.mark.parametrize("what", ["pipe", "memfd_create"])
async def test_without_descriptors_a_batch_goes_back_and_none_is_left_open(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [1, 1]  # the third of its files or pipes is one too many
    make = getattr(os, what)

    def make_or_fail(*args: Any) -> Any:
        if not left:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        left.pop()
        return make(*args)

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, what, make_or_fail)
    with pytest.raises(NotStarted, match="Too many open files"), shell._files(b"", b"", b""):
        launch.open_pipes(3)
    assert len(os.listdir("/proc/self/fd")) == before
