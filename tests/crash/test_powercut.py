"""The short form of `python -m tests.crash.powercut`, and that it would notice."""

import dataclasses

import pytest

from tests.crash.blocklog import FLUSH, WRITE
from tests.crash.powercut import UNMOUNTABLE_MAX, Recording, record, replay, why_not

SEED = 20_264
PUSHES = 60
CUTS = 40

pytestmark = [pytest.mark.skipif(why_not() is not None, reason=why_not() or ""), pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record(PUSHES)


def test_after_a_power_cut_every_acknowledged_job_is_there_exactly(recording: Recording) -> None:
    report = replay(recording, CUTS, SEED)
    assert report.cuts == CUTS
    assert report.needed > PUSHES
    assert report.unmountable <= UNMOUNTABLE_MAX * CUTS


def test_a_disk_that_lies_about_its_flushes_is_noticed(recording: Recording) -> None:
    """No software holds on such a disk: so the proof must fail on it."""
    deaf = [op if op.kind != FLUSH else op._replace(kind=WRITE) for op in recording.ops[recording.begin :]]
    kept = dataclasses.replace(recording, ops=[*recording.ops[: recording.begin], *deaf])
    with pytest.raises(AssertionError, match=r"acknowledged and lost|damaged"):
        replay(kept, CUTS, SEED)
