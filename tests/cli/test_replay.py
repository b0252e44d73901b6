"""`jqd journal replay` into a real Valkey: what ended stays ended, what waits runs, and twice is once."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
import trio

from jqd.cli import run
from jqd.cli.replay import Tally, replay
from jqd.domain.clock import SystemClock
from jqd.domain.followers import encode_as_outbox_entry
from jqd.domain.job import Fate, State
from jqd.domain.jobid import ALPHABET, partition_of
from jqd.domain.record import Lane
from jqd.journal import Files
from jqd.journal.frame import HEAD_BYTES, Frame
from jqd.journal.inspect import snapshot, walk
from jqd.journal.recover import Retired, write_retired
from jqd.store import StoreConfig, open_embedded, open_store
from tests.cli.books import AT_MS, Batch, Ids, cancels, flip, outcome, outcomes, states, write, write_other
from tests.cli.replayed import FAILED, Told, contents, into, replayed, views, watched
from tests.directories import short_directory
from tests.valkey import Valkey, emptied, fresh_valkey, valkey_server

__all__ = ["fresh_valkey", "valkey_server"]


def test_changes_come_before_what_they_change(
    fresh_valkey: Valkey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = Ids()
    pushed = ids.jobs({"name": "t", "argument": "old"}, {"name": "t", "argument": "other"})
    directory = write(tmp_path, pushed, ids.edit(pushed.ids[0], {"name": "t", "argument": "new"}, 77))
    words = ["--data-dir", str(tmp_path), "--store", fresh_valkey.url]
    for _ in range(2):
        assert replayed(capsys, *words) == {"jobs": 2, "outcomes": 0, "cancels": 0, "changes": 1, "rules": 0}
        found = [view and (view.revision, view.argument) for view in views(fresh_valkey.url, pushed.ids).values()]
        assert found == [(77, msgspec.msgpack.encode("new")), (0, msgspec.msgpack.encode("other"))]
    calls = list[tuple[str, int, int]]()

    async def watch(store: Any) -> Tally:
        return await replay(Files(), snapshot(Files(), directory), watched(store, calls))

    into(fresh_valkey.url, watch)
    assert [name for name, _, _ in calls] == ["apply_changes", "apply_jobs"]
    assert run(["journal", "cat", "--data-dir", str(tmp_path), "--lane", "changes"]) == 0
    (progressed,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (progressed["lane"], progressed["change"], progressed["revision"], progressed["argument"]) == (
        "changes",
        "edit",
        77,
        "new",
    )
    assert run(["journal", "cat", "--data-dir", str(tmp_path), "--lines"]) == 0
    assert [line.split("|")[2] for line in capsys.readouterr().out.splitlines()] == ["old", "other", "new"]


def test_each_partition_gets_its_own_and_twice_is_once(
    fresh_valkey: Valkey, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    progressed = Told(tmp_path, homes=ALPHABET)
    monkeypatch.setenv("JQD_STORE__PARTITIONS", "3")
    words = ["--data-dir", str(tmp_path), "--store", fresh_valkey.url]
    assert replayed(capsys, *words, "--dry-run")["unknown_jobs"] == 9
    assert contents(fresh_valkey.url) == {}
    for _ in range(2):
        assert replayed(capsys, *words) == {"jobs": 9, "outcomes": 9, "cancels": 2, "changes": 0, "rules": 0}
        found: dict[str, State] = {}
        for part in StoreConfig(fresh_valkey.url, partitions=3).parts():
            here = {
                i: view.state for i, view in views(part, [*progressed.jobs.ids, *progressed.dated.ids]).items() if view
            }
            assert {partition_of(job_id, 3) for job_id in here} == {part.partition}
            found |= here
        assert found == progressed.expected()
    assert replayed(capsys, *words, "--dry-run")["unknown_jobs"] == 0


def test_nothing_is_brought_to_a_store_of_another_number_of_partitions(
    fresh_valkey: Valkey, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Told(tmp_path)
    words = ["journal", "replay", "--data-dir", str(tmp_path), "--store", fresh_valkey.url]
    monkeypatch.setenv("JQD_STORE__PARTITIONS", "2")
    assert run(words) == 0, "an empty store is begun as it is to be"
    before = contents(fresh_valkey.url)
    for other in ("1", "3"):
        monkeypatch.setenv("JQD_STORE__PARTITIONS", other)
        capsys.readouterr()
        assert run(words) == 1
        assert "store.partitions = 2" in capsys.readouterr().err
        assert run([*words, "--dry-run", "-o", "json"]) == 0
        said = capsys.readouterr()
        assert "not asked which jobs it knows" in said.err
        assert json.loads(said.out)["unknown_jobs"] is None
    assert contents(fresh_valkey.url) == before


def test_twice_is_once(fresh_valkey: Valkey, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    progressed, url = Told(tmp_path), fresh_valkey.url
    words = ["--data-dir", str(tmp_path), "--store", url]
    before = states(progressed.directory)
    assert replayed(capsys, *words, "--dry-run") == {
        "jobs": 9,
        "outcomes": 9,
        "cancels": 2,
        "changes": 0,
        "rules": 0,
        "unknown_jobs": 9,
    }
    assert contents(url) == {}
    assert replayed(capsys, *words) == {"jobs": 9, "outcomes": 9, "cancels": 2, "changes": 0, "rules": 0}
    assert progressed.states(url) == progressed.expected()
    first = contents(url)
    assert replayed(capsys, *words) == {"jobs": 9, "outcomes": 9, "cancels": 2, "changes": 0, "rules": 0}
    assert contents(url) == first
    assert replayed(capsys, *words, "--dry-run")["unknown_jobs"] == 0
    assert contents(url) == first
    assert states(progressed.directory) == before
    found = views(url, [progressed.done, progressed.twice, progressed.dead, progressed.dated.ids[0]])
    done, twice, dead, dated = found.values()
    assert done is not None
    assert done.result == msgspec.msgpack.encode(42)
    assert twice is not None
    assert [one.attempt for one in twice.history] == [1, 2]
    assert dead is not None
    assert dead.outcome is not None
    assert dead.outcome.message == "boom"
    assert dated is not None
    assert (dated.priority, dated.jobtype) == (4, "u")


def test_a_job_that_comes_from_another_disk_later_knows_its_attempts(
    fresh_valkey: Valkey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its outcomes lay here, replayed more often than once; its machine's disk is found last."""
    progressed = Told(tmp_path / "a")
    write(tmp_path / "b", progressed.stranger)
    for _ in range(3):
        replayed(capsys, "--data-dir", str(tmp_path / "a"), "--store", fresh_valkey.url)
    replayed(capsys, "--data-dir", str(tmp_path / "b"), "--store", fresh_valkey.url)
    (view,) = views(fresh_valkey.url, progressed.stranger.ids).values()
    assert view is not None
    assert (view.state, len(view.history), view.attempts) == (State.RETRYING, 1, 1)


def test_a_directory_that_grew_is_replayed_from_where_it_was(fresh_valkey: Valkey, tmp_path: Path) -> None:
    job, files = Ids().jobs({"name": "t"}), Files()
    failed = [outcomes(outcome(job.ids[0], Fate.RETRY, attempt=number, fence=number, **FAILED)) for number in (1, 2)]
    here, there = write(tmp_path / "here", *failed), write(tmp_path / "there", job)
    whole = snapshot(files, here)
    (short,) = snapshot(files, here)
    short.end = short.first + 44 + len(failed[0].body)

    def work(segments: Any) -> Callable[[Any], Any]:
        return lambda store: replay(files, segments, [store])

    for segments in ([short], whole, whole, snapshot(files, there)):
        into(fresh_valkey.url, work(segments))
    (view,) = views(fresh_valkey.url, job.ids).values()
    assert view is not None
    assert [one.attempt for one in view.history] == [1, 2]
    assert view.attempts == 2


def test_what_the_store_knows_is_left_alone(
    fresh_valkey: Valkey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    progressed = Told(tmp_path)
    words = ["--data-dir", str(tmp_path), "--store", fresh_valkey.url]

    async def cancel(store: Any) -> None:
        await store.apply_cancels("a" * 32, 0, 1, [progressed.waits])

    replayed(capsys, *words)
    into(fresh_valkey.url, cancel)
    replayed(capsys, *words)
    assert progressed.states(fresh_valkey.url) == progressed.expected() | {progressed.waits: State.CANCELLED}


def test_what_the_store_had_and_forgot_does_not_run_again(
    fresh_valkey: Valkey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The jobs ended at other daemons, and the store forgot them."""
    ids = Ids()
    batches = [ids.jobs({"name": "t"}) for _ in range(4)]
    old, early, late, edited = [batch.ids[0] for batch in batches]
    directory = write(tmp_path, *batches[:2], ids.edit(edited, {"name": "t"}, 7), *batches[2:])
    (seen,) = snapshot(Files(), directory)
    at = [piece.start for piece in walk(Files(), seen) if isinstance(piece, Frame)]
    assert seen.header is not None
    name, disk = seen.header.journal_id.hex(), Files()

    async def forget(store: Any) -> None:
        await store.look(fresh=False)
        for lane in (Lane.JOBS, Lane.CHANGES):
            await store.skip(name, lane, 0, at[3])  # as if these had been applied

    into(fresh_valkey.url, forget)
    words = ["--data-dir", str(tmp_path), "--store", fresh_valkey.url]
    counts = {"jobs": 2, "outcomes": 0, "cancels": 0, "changes": 0, "rules": 0}
    assert replayed(capsys, *words, "--dry-run") == {**counts, "unknown_jobs": 2}
    assert replayed(capsys, *words) == counts
    assert [*map(bool, views(fresh_valkey.url, [old, early, late, edited]).values())] == [False, False, True, True]
    emptied(fresh_valkey)
    disk.open_directory(directory)
    write_retired(disk, directory, Retired(at[1], at[1]))
    assert replayed(capsys, *words) == {**counts, "jobs": 3, "changes": 1}, "an emptied store lacks all but the retired"
    assert [*map(bool, views(fresh_valkey.url, [old, early, late, edited]).values())] == [False, True, True, True]


def test_no_daemon_keeps_anything_for_a_replay(
    fresh_valkey: Valkey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else each daemon would keep its retired segments for a day, for journals that no daemon has."""
    Told(tmp_path)
    for _ in range(2):
        replayed(capsys, "--data-dir", str(tmp_path), "--store", fresh_valkey.url)
    with redis.Redis.from_url(fresh_valkey.url) as client:
        assert client.keys("*:applied") == client.keys("*:kept") == []


def test_since_leaves_out_older_jobs_but_not_what_became_of_them(
    fresh_valkey: Valkey, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemClock, "wall_ms", lambda self: AT_MS + 3_602_000)
    progressed = Told(tmp_path)
    words = ["--data-dir", str(tmp_path), "--store", fresh_valkey.url, "--since", "1h"]
    assert replayed(capsys, *words) == {"jobs": 1, "outcomes": 9, "cancels": 2, "changes": 0, "rules": 0}
    assert progressed.states(fresh_valkey.url) == dict.fromkeys(progressed.jobs.ids) | {
        progressed.dated.ids[0]: State.SCHEDULED
    }


def test_damage_is_said_and_the_rest_is_replayed(
    fresh_valkey: Valkey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    progressed = Told(tmp_path)
    newest = sorted(progressed.directory.glob("*.jqd"))[-1]
    first = sorted(progressed.directory.glob("*.jqd"))[0]
    flip(first, 9, HEAD_BYTES + 60)
    write(tmp_path, Batch(Lane.OUTCOMES, 1, msgspec.msgpack.encode("none"), []))
    assert run(["journal", "replay", "--data-dir", str(tmp_path), "--store", fresh_valkey.url]) == 1
    said = capsys.readouterr()
    assert [line.split()[1:] for line in said.out.splitlines()] == [["1"], ["9"], ["2"], ["0"], ["0"]]
    head, content, body = said.err.splitlines()
    assert "bad head" in head
    assert "cannot be decoded" in content
    assert f"{first.name}: byte {HEAD_BYTES}: bad body" in body
    assert newest != first
    assert progressed.states(fresh_valkey.url)[progressed.dated.ids[0]] is State.SCHEDULED


def test_what_is_no_damage_is_not_said_and_what_is_is_said_once(
    fresh_valkey: Valkey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    progressed = Told(tmp_path)
    segments = sorted(progressed.directory.glob("*.jqd"))
    with segments[-1].open("ab") as newest:
        newest.write(b"torn")
    replayed(capsys, "--data-dir", str(tmp_path), "--store", fresh_valkey.url)
    flip(segments[0], HEAD_BYTES + 9)  # a header: whatever lane it is of, all of them come by
    assert run(["journal", "replay", "--data-dir", str(tmp_path), "--store", fresh_valkey.url]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert f"{segments[0].name}: byte {HEAD_BYTES}: bad header" in said


def test_large_outcomes_go_one_by_one(fresh_valkey: Valkey, tmp_path: Path) -> None:
    ids = Ids().jobs(*[{"name": "t"}] * 6).ids
    large = msgspec.msgpack.encode(bytes(800_000))
    fates = [
        outcome(ids[0], Fate.SUCCEEDED, keep_result=True, result=large),
        outcome(ids[1], Fate.FAILED, error=large),
        outcome(ids[2], Fate.FAILED, message="m" * 800_000),
        outcome(ids[3], Fate.FAILED, error=msgspec.msgpack.encode(bytes(400_000)), message="m" * 400_000),
        outcome(ids[4], Fate.SUCCEEDED),
    ]
    directory, files, calls = write(tmp_path, outcomes(*fates)), Files(), list[tuple[str, int, int]]()
    into(fresh_valkey.url, lambda store: replay(files, snapshot(files, directory), watched(store, calls)))
    assert [records for _, records, _ in calls] == [1, 1, 1, 2]


def test_a_large_journal_goes_in_calls_of_some_hundred_and_a_mebibyte(fresh_valkey: Valkey, tmp_path: Path) -> None:
    ids = Ids()
    small = ids.jobs(*[{"name": "t"}] * 1_234)
    large = ids.jobs(*[{"name": "t", "argument": bytes(400_000)}] * 4)
    failed = outcomes(*[outcome(job_id, Fate.RETRY, **FAILED) for job_id in small.ids[:600]])
    directory = write(tmp_path, small, large, cancels(*small.ids[:600]), failed)
    files, calls = Files(), list[tuple[str, int, int]]()
    looked = list[int]()

    async def watch(store: Any) -> Tally:
        return await replay(files, snapshot(files, directory), watched(store, calls), progressed=looked.append)

    tally = into(fresh_valkey.url, watch)
    assert tally.counts == {Lane.CANCELS: 600, Lane.OUTCOMES: 600, Lane.CHANGES: 0, Lane.JOBS: 1_238, Lane.RULES: 0}
    assert sum(looked) == len(Lane) * (sum(path.stat().st_size for path in directory.glob("*.jqd")) - HEAD_BYTES)
    assert [(name, records) for name, records, _ in calls] == [
        ("apply_cancels", 500),
        ("apply_cancels", 100),
        ("apply_outcomes", 500),
        ("apply_outcomes", 100),
        ("apply_jobs", 500),
        ("apply_jobs", 500),
        ("apply_jobs", 234 + 2),
        ("apply_jobs", 2),
    ]
    assert [start for _, _, start in calls] == [0, 1, 0, 1, 0, 1, 2, 3]


def test_a_count_needs_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Told(tmp_path)
    words = ["journal", "replay", "--dry-run", "-o", "json", "--data-dir", str(tmp_path)]
    for store in ([], ["--store", f"unix://{tmp_path}/nobody.sock"]):
        assert run([*words, *store]) == 0
        said = capsys.readouterr()
        assert json.loads(said.out) == {
            "jobs": 9,
            "outcomes": 9,
            "cancels": 2,
            "changes": 0,
            "rules": 0,
            "unknown_jobs": None,
        }
        assert "the store was not asked which jobs it knows" in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]


def test_without_a_url_it_is_the_store_of_the_data_directory(capsys: pytest.CaptureFixture[str]) -> None:
    """Started for this time; and when it runs already, the one that runs."""
    with short_directory() as data_dir:
        progressed = Told(data_dir)
        assert replayed(capsys, "--data-dir", str(data_dir)) == {
            "jobs": 9,
            "outcomes": 9,
            "cancels": 2,
            "changes": 0,
            "rules": 0,
        }

        async def look() -> None:
            async with open_embedded(data_dir / "store") as url:
                assert await trio.to_thread.run_sync(progressed.states, url) == progressed.expected()
                words = [*("journal", "replay", "--dry-run", "-o", "json"), "--data-dir", os.fspath(data_dir)]
                assert await trio.to_thread.run_sync(run, words) == 0

        trio.run(look)
        assert json.loads(capsys.readouterr().out)["unknown_jobs"] == 0


def test_the_journals_of_all_processes_are_replayed_ends_and_cancels_first(
    fresh_valkey: Valkey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = Ids()
    ours, theirs = ids.jobs({"name": "t"}, {"name": "t"}), ids.jobs({"name": "t"}, {"name": "t"})
    write(tmp_path, ours, cancels(theirs.ids[0]))
    write_other(tmp_path, outcomes(outcome(ours.ids[0], Fate.SUCCEEDED)), theirs)
    words = ["--data-dir", str(tmp_path), "--store", fresh_valkey.url]
    counts = {"jobs": 4, "outcomes": 1, "cancels": 1, "changes": 0, "rules": 0}
    assert replayed(capsys, "--dry-run", *words) == {**counts, "unknown_jobs": 4}
    assert replayed(capsys, *words) == counts
    found = views(fresh_valkey.url, [*ours.ids, *theirs.ids]).values()
    assert [view and view.state for view in found] == [State.SUCCEEDED, State.WAITING, State.CANCELLED, State.WAITING]


@pytest.mark.parametrize("beside", [False, True])
def test_what_followed_retired_outcomes_is_not_said_again(fresh_valkey: Valkey, tmp_path: Path, beside: bool) -> None:
    """It was pushed before they were retired, and may have ended and be forgotten since: it would run twice. What is
    retired in one journal is not for that in another."""
    ids = Ids()
    old, new = [ids.jobs({"name": "t"}) for _ in range(2)]
    ends = [
        outcomes(
            outcome(
                batch.ids[0],
                Fate.SUCCEEDED,
                follows=encode_as_outbox_entry([{"name": "next"}], batch.ids[0], "t", 0, AT_MS),
            )
        )
        for batch in (old, new)
    ]
    directory = write(tmp_path, old, ends[0])
    retired = snapshot(Files(), directory)[-1].end
    disk = Files()
    disk.open_directory(directory)
    write_retired(disk, directory, Retired(retired, retired))
    others = snapshot(Files(), write_other(tmp_path, new, ends[1])) if beside else []
    if not beside:
        write(tmp_path, new, ends[1])

    async def work(store: Any) -> list[bytes]:
        await replay(Files(), [*snapshot(Files(), directory), *others], [store])
        return [entry.partition(b" ")[0] for entry in (await store.get_outbox(10, 1 << 20)).entries]

    assert into(fresh_valkey.url, work) == [new.ids[0].encode()]
    found = views(fresh_valkey.url, [*old.ids, *new.ids]).values()
    assert [view and view.state for view in found] == [None, State.SUCCEEDED], "a retired job is in the store, or ended"


def test_two_machines_are_replayed_at_once(fresh_valkey: Valkey, tmp_path: Path) -> None:
    """A call of one is never taken for one of the other, sent again because its answer was lost."""
    sets: list[tuple[Path, list[str]]] = []
    for number in (7, 9):
        (tmp_path / str(number)).mkdir()
        batch = Ids(number=number).jobs(*[{"name": "t", "argument": at} for at in range(400)])
        sets.append((write(tmp_path / str(number), batch), batch.ids))

    async def both() -> None:
        config = StoreConfig(url=fresh_valkey.url)
        async with open_store(config) as one, open_store(config) as other:
            await one.look(fresh=True)
            async with trio.open_nursery() as nursery:
                for store, (directory, _) in zip((one, other), sets, strict=True):
                    nursery.start_soon(replay, Files(), snapshot(Files(), directory), [store])

    trio.run(both)
    for _, job_ids in sets:
        assert all(views(fresh_valkey.url, job_ids).values())
