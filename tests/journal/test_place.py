"""What the doctor says of the disk a journal lies on."""

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from jqd.domain import diagnostic
from jqd.domain.diagnostic import Diagnostic, refusals
from jqd.journal import disk
from jqd.journal.disk import PASSING, REMOTE, examine_disk


def codes(findings: list[Diagnostic]) -> list[str]:
    return [finding.code for finding in findings]


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    """A table of mounts in which the tests' own disk is an ext4."""
    file = tmp_path / "mountinfo"
    write_kind(file, "ext4")
    return file


def write_kind(file: Path, kind: str) -> None:
    device = os.stat(file.parent).st_dev
    ours = f"36 35 {os.major(device)}:{os.minor(device)} / /mnt rw,noatime shared:1 - {kind} /dev/sda1 rw"
    file.write_text(f"22 1 0:999 / /other rw - tmpfs none rw\n{ours}\n")


def test_a_good_disk_is_well_and_nothing_is_left_on_it(tmp_path: Path, mounts: Path) -> None:
    assert examine_disk(tmp_path, mounts=mounts) == []
    assert examine_disk(tmp_path / "not" / "made" / "yet", mounts=mounts) == []
    assert list(tmp_path.iterdir()) == [mounts]


@pytest.mark.parametrize("kind", sorted([*PASSING, *REMOTE]))
def test_a_disk_that_forgets_or_is_far_away_is_told(kind: str, tmp_path: Path, mounts: Path) -> None:
    write_kind(mounts, kind)
    (finding,) = examine_disk(tmp_path, mounts=mounts)
    assert finding.code == ("disk_passing" if kind in PASSING else "disk_remote")
    assert finding.what.endswith(kind)
    assert not refusals([finding])


def test_where_the_system_tells_no_kinds_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert examine_disk(tmp_path, mounts=tmp_path / "absent") == []
    (tmp_path / "empty").write_text("no such device here\n")
    assert examine_disk(tmp_path, mounts=tmp_path / "empty") == []


@pytest.mark.parametrize("there", [True, False])
def test_a_disk_that_takes_nothing_is_refused(
    there: bool, tmp_path: Path, mounts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fdatasync", fail)
    (finding,) = examine_disk(tmp_path if there else tmp_path / "d", mounts=mounts)
    assert refusals([finding])
    assert finding.code == "disk_unwritable"
    assert "Input/output error" in finding.why
    assert ("does not exist yet" in finding.mend) is not there


class Room(NamedTuple):
    """What `statvfs` says."""

    f_bavail: int = 1 << 30
    f_frsize: int = 4_096
    f_files: int = 1 << 20
    f_favail: int = 1 << 19
    f_flag: int = 0


@pytest.mark.parametrize(
    ("room", "code", "what"),
    [
        (Room(), "", ""),
        (Room(f_files=0, f_favail=0), "", ""),  # as btrfs: it has no such limit
        (Room(f_favail=12), "disk_nearly_full", "12 more files"),
        (Room(f_bavail=1), "disk_nearly_full", "0 MiB"),
        (Room(f_flag=os.ST_RDONLY), "disk_read_only", "read-only"),
    ],
)
def test_room_is_bytes_and_files_and_leave_to_write(
    room: Room, code: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda place: room)
    found = list(disk.examine_room(Path("/j")))
    assert codes(found) == [code] * bool(code)
    assert all(what in finding.what and finding.code in diagnostic.PASSING for finding in found)


def test_a_disk_with_little_room_is_told(tmp_path: Path, mounts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "FREE_BYTES", 1 << 60)
    assert codes(examine_disk(tmp_path, mounts=mounts)) == ["disk_nearly_full"]
