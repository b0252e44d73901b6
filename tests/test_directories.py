"""A killed server's directory is removed although the server makes one more file meanwhile."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.directories import remove


def test_what_a_dying_server_makes_meanwhile_goes_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    (data / "store").mkdir(parents=True)
    rmdir, late = os.rmdir, [data / "store" / "temp.aof"]

    def rmdir_as_one_more_comes(path: Any, *, dir_fd: int | None = None) -> None:
        if late:
            late.pop().touch()
        rmdir(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", rmdir_as_one_more_comes)
    remove(data)
    assert not late
    assert not data.exists()


def test_what_cannot_be_removed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError("not yours")

    (tmp_path / "data").mkdir()
    monkeypatch.setattr(os, "rmdir", refuse)
    with pytest.raises(PermissionError, match="not yours"):
        remove(tmp_path / "data")
