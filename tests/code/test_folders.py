"""What code leaves on the disk is deleted."""

import os
from pathlib import Path

import pytest

from jqd.code.folders import remove

DEPTH = 3_000  # deeper than a path can name, than Python recurses, and than a process may have files open


def test_folders_however_deep(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    at = os.open(home, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("a", dir_fd=at)
        os.mkdir("b", dir_fd=at)
        below = os.open("a", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("file", os.O_CREAT, dir_fd=at))
    os.close(at)
    remove(home)
    assert not home.exists()


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


def test_what_lies_elsewhere_stays(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    (home / "a" / "b").mkdir(parents=True)
    other.mkdir()
    (other / "kept").touch()
    (home / "a" / "b" / "link").symlink_to(other)
    (home / "a").chmod(0)
    home.chmod(0)
    remove(home)
    remove(home)
    assert not home.exists()
    home.symlink_to(other)
    remove(home)
    assert (other / "kept").exists()


def test_what_cannot_be_deleted_is_told_and_keeps_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    for name in ("one", "two", "three"):
        (home / name).mkdir(parents=True)
        (home / name / "file").touch()
    unlink = os.unlink

    def held(name: str, *, dir_fd: int) -> None:
        if (home / "two").stat().st_ino == os.fstat(dir_fd).st_ino:
            raise PermissionError("immutable")
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", held)
    remove(home)
    monkeypatch.undo()
    assert [path.name for path in home.rglob("*")] == ["two", "file"]
    assert "code.folder_left" in capsys.readouterr().out
