from jqd.service.recent_pushes import BATCHES_MAX, RecentPushes


def test_it_knows_what_was_not_applied_yet():
    taken = RecentPushes()
    assert not taken.awaits("a", 0)
    taken.note("b1", "b9", 100)
    taken.note("d1", "d9", 200)
    assert [taken.awaits(i, 100) for i in ("a9", "b1", "b5", "c0", "d1", "d9", "e0")] == [
        *(False, False, False, False, True, True, False)
    ]
    assert taken.awaits("b5", 99)
    assert not taken.awaits("d9", 200)


def test_it_forgets_the_oldest_first():
    taken = RecentPushes()
    ids = [f"{n:08}" for n in range(3 * BATCHES_MAX)]
    for n, job_id in enumerate(ids):
        taken.note(job_id, job_id, n + 1)
        assert taken.awaits(job_id, 0)
    assert not taken.awaits(ids[0], 0)
    assert all(taken.awaits(job_id, 0) for job_id in ids[-BATCHES_MAX:])
