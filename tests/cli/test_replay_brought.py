"""`jqd journal replay` of jobs that came with the outcomes that they follow: living daemons run none that has ended."""

from pathlib import Path
from typing import Any

import pytest

from jqd.cli.replay import replay
from jqd.domain.followers import follower_id
from jqd.domain.job import Fate, Outcome, State
from jqd.domain.jobid import made_id
from jqd.domain.outcome_followers import encode_as_jobs
from jqd.domain.record import Lane
from jqd.journal import Files
from jqd.journal.inspect import snapshot
from jqd.loops.lane_records import CHUNK_RECORDS
from jqd.store import JobView
from tests.cli.books import AT_MS, Ids, outcome, outcomes, write
from tests.cli.replayed import Watched, into
from tests.valkey import Valkey, fresh_valkey, valkey_server

__all__ = ["fresh_valkey", "valkey_server"]


def won(job_id: str, name: str = "next") -> Outcome:
    """A success that brings one job."""
    follows = encode_as_jobs([{"name": name, "argument": None}], job_id, "t", 0, AT_MS, options=[])
    return outcome(job_id, Fate.SUCCEEDED, follows=follows)


class Seen(Watched):
    """Looks at some jobs after each call, as a daemon might."""

    def __init__(self, store: Any, job_ids: list[str]) -> None:
        super().__init__(store, [])
        self._ids = job_ids
        self.states: list[State] = []

    def __getattr__(self, name: str) -> Any:
        call = super().__getattr__(name)

        async def look_behind(*arguments: Any, **options: Any) -> Any:
            answer = await call(*arguments, **options)
            if name.startswith("apply_"):
                found = [await self._store.get_job(job_id) for job_id in self._ids]
                self.states += [view.state for view in found if isinstance(view, JobView)]
            return answer

        return look_behind


@pytest.mark.parametrize("segment_bytes", [600, 64 << 20], ids=["many segments", "one segment"])
def test_jobs_that_outcomes_brought_and_that_ended_never_wait(
    fresh_valkey: Valkey, tmp_path: Path, segment_bytes: int
) -> None:
    ids = Ids()
    parent, others = ids.jobs({"name": "t"}), ids.jobs(*[{"name": "t"}] * CHUNK_RECORDS)
    child = made_id(follower_id(parent.ids[0], 0, 0))
    grandchild = made_id(follower_id(child, 0, 0))
    last = made_id(follower_id(grandchild, 0, 0))
    filling = outcomes(*[outcome(one, Fate.SUCCEEDED) for one in others.ids])
    ends = [outcomes(won(parent.ids[0])), filling, outcomes(won(child)), filling, outcomes(won(grandchild))]
    directory = write(tmp_path, parent, others, *ends, segment_bytes=segment_bytes)

    async def work(store: Any) -> tuple[int, State]:
        for _ in range(2):
            seen = Seen(store, [parent.ids[0], child, grandchild])
            stores: list[Any] = [seen]
            tally = await replay(Files(), snapshot(Files(), directory), stores)
            assert set(seen.states) == {State.SUCCEEDED}
        return tally.counts[Lane.OUTCOMES], (await store.get_job(last)).state

    assert into(fresh_valkey.url, work) == (2 * CHUNK_RECORDS + 3, State.WAITING)
