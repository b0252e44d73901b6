"""Where the ids that were given out lately stand in their journal."""

from jqd.domain.jobid import BATCHES_MAX, IdSource
from jqd.testing.clock import ManualClock


def give(ids: IdSource, count: int, end: int, tenant: str = "") -> list[str]:
    batch = ids.take(count)
    ids.note(batch.first, end, tenant)
    return batch.ids()


def test_it_knows_what_was_not_applied_yet():
    ids = IdSource(journal=1, salt=1, clock=ManualClock())
    before = ids.take(1).first
    first, between = give(ids, 9, 100), ids.take(1).first
    second, after = give(ids, 9, 200, "acme"), ids.take(1).first
    asked = [before, first[0], first[4], between, second[0], second[8], after]
    assert [ids.awaits(job_id, 100) for job_id in asked] == [False, False, False, False, True, True, False]
    assert ids.awaits(first[4], 99)
    assert not ids.awaits(second[8], 200)
    assert [ids.is_of(job_id, "acme") for job_id in asked] == [False, False, False, False, True, True, False]


def test_it_forgets_the_oldest_first():
    ids = IdSource(journal=1, salt=1, clock=ManualClock())
    given = [give(ids, 1, n + 1)[0] for n in range(3 * BATCHES_MAX)]
    assert not ids.awaits(given[0], 0)
    assert all(ids.awaits(job_id, 0) for job_id in given[-BATCHES_MAX:])
