"""`jqd journal verify | repair` on directories that are damaged."""

import json
from pathlib import Path
from typing import Any

import pytest

from jqd.cli import run
from jqd.domain.job import State
from jqd.domain.record import Lane
from jqd.journal import Files
from jqd.journal.frame import HEAD_BYTES, HEADER_COPY_BYTES
from jqd.journal.inspect import snapshot
from tests.cli.books import VERIFY, Ids, a_bit_of_everything, files_of, flip, read, states, told, write
from tests.cli.books import data_dir as data_dir  # the fixture
from tests.cli.replayed import into, replayed, views
from tests.valkey import Valkey, fresh_valkey, valkey_server

__all__ = ["fresh_valkey", "valkey_server"]

NONE = dict.fromkeys(["jobs", "outcomes", "cancels", "changes", "rules"], 0)


def test_a_whole_journal_is_said_to_be_whole(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["journal", "verify", "--data-dir", str(data_dir)]) == 0
    assert capsys.readouterr().out.endswith("8 frames, 14 records: whole\n")
    assert run(["journal", "verify", "--data-dir", str(data_dir), "-o", "json"]) == 0
    checked = json.loads(capsys.readouterr().out)
    assert checked | {"bytes": 0} == {
        "whole": True,
        "segments": 2,
        "bytes": 0,
        "frames": 8,
        "records": 14,
        "damaged": 0,
        "places": [],
    }


def test_a_flipped_bit_anywhere_is_named(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In both segments: in each copy of the head, in headers and bodies of frames. All but the newest commit."""
    records = a_bit_of_everything()
    starts = [HEAD_BYTES + sum(44 + len(batch.body) for batch in records[:number]) for number in range(4)]
    for path in files_of(data_dir):
        whole = path.read_bytes()
        heads = [(byte, byte // HEADER_COPY_BYTES * HEADER_COPY_BYTES, "bad head") for byte in (9, 70, 3_000, 4_096)]
        inside = [(start + 20, start, "bad header") for start in starts[:3]]
        inside += [(start + 44, start, "bad body") for start in starts[:3]]
        for byte, offset, kind in heads + inside:
            flip(path, byte)
            assert run([*VERIFY, str(data_dir)]) == 1
            (place,) = told(capsys)
            assert (place["file"], place["offset"], place["kind"], place["damage"]) == (path.name, offset, kind, True)
            path.write_bytes(whole)
    assert run([*VERIFY, str(data_dir)]) == 0
    assert told(capsys) == []


def test_a_torn_tail_is_said_and_is_no_damage(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newest = files_of(data_dir)[1]
    size = newest.stat().st_size
    newest.write_bytes(newest.read_bytes() + b"torn")
    assert run(["journal", "verify", "--data-dir", str(data_dir)]) == 0
    note, summary = capsys.readouterr().out.splitlines()
    assert note == f"note: {newest.name}: byte {size}: torn tail, 4 bytes; as a rule not acknowledged"
    assert summary.endswith(": whole")


def test_damage_is_counted_in_every_form(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = files_of(data_dir)[0]
    flip(first, HEAD_BYTES + 60)
    assert run(["journal", "verify", "--data-dir", str(data_dir)]) == 1
    place, summary = capsys.readouterr().out.splitlines()
    assert place.startswith(f"damage: {first.name}: byte {HEAD_BYTES}: bad body, ")
    assert summary.endswith(": 1 damaged place; mend it with: jqd journal repair")
    assert run(["journal", "verify", "--data-dir", str(data_dir), "-o", "json"]) == 1
    checked = json.loads(capsys.readouterr().out)
    assert (checked["whole"], checked["damaged"], len(checked["places"])) == (False, 1, 1)


def test_a_repaired_journal_is_whole_and_starts(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = files_of(data_dir)
    good = [batch.body for batch in a_bit_of_everything() if batch.lane == 1]
    flip(first, HEAD_BYTES + 60)
    flip(second, 3, HEADER_COPY_BYTES + 3)
    second.write_bytes(second.read_bytes() + b"torn")
    before = states(data_dir / "journal")
    assert run(["journal", "repair", "--data-dir", str(data_dir), "--dry-run", "-o", "json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    after = states(data_dir / "journal")
    assert {name: after[name] for name in (first.name, second.name)} == {
        name: before[name] for name in (first.name, second.name)
    }
    assert run(["journal", "repair", "--data-dir", str(data_dir)]) == 0
    done = capsys.readouterr().out.splitlines()
    assert len(done) == len(planned["done"]) == 3
    assert run([*VERIFY, str(data_dir)]) == 0
    assert told(capsys) == []
    assert run(["journal", "repair", "--data-dir", str(data_dir)]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "needs no repair" in printed.err
    assert read(data_dir / "journal") == [good[1], *good]
    assert sum(path.stat().st_size for path in (data_dir / "journal").glob("*.torn")) > HEAD_BYTES


def test_a_lost_head_that_starts_passed_over_is_to_be_replayed(
    fresh_valkey: Valkey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The store's position lies behind the repaired segment: no start reads it, and health says nothing."""
    ids = Ids()
    first, lost, last = [ids.jobs({"name": "t"}) for _ in range(3)]
    for batch in (first, lost):
        write(tmp_path, batch)
    path = files_of(tmp_path)[1]
    flip(path, 3, HEADER_COPY_BYTES + 3)
    directory = write(tmp_path, last)  # this start passes over it
    assert path.with_suffix(".damaged").exists()
    segments = snapshot(Files(), directory)
    header, end = segments[-1].header, segments[-1].end
    assert header is not None

    async def apply(store: Any) -> None:
        await store.look(fresh=False)
        await store.skip(header.journal_id.hex(), Lane.JOBS, 0, end)

    into(fresh_valkey.url, apply)
    assert run(["journal", "repair", "--data-dir", str(tmp_path)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "replay" in line]
    assert line.partition(";")[0].endswith(f"apply it now: jqd journal replay --segment {path.name}")
    words = ["--data-dir", str(tmp_path), "--store", fresh_valkey.url]
    assert replayed(capsys, *words)["jobs"] == 0
    assert run(["journal", "replay", *words, "--segment", "5"]) == 2
    assert "there is no segment 5" in capsys.readouterr().err
    words += ["--segment", path.name]
    assert replayed(capsys, *words, "--dry-run") == {**NONE, "jobs": 1, "unknown_jobs": 1}
    assert replayed(capsys, *words) == {**NONE, "jobs": 1}
    found = views(fresh_valkey.url, [*first.ids, *lost.ids, *last.ids]).values()
    assert [view and view.state for view in found] == [None, State.WAITING, None]
