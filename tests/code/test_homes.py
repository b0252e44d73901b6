"""The folders of contexts: whatever code does to them, nothing above them is touched, and its worker goes on."""

from pathlib import Path
from typing import Any

import pytest

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
