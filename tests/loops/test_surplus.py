"""A process that there is for its journal alone: it writes nothing that another daemon may write."""

import pytest
import trio

from jqd.cron import service as schedules
from jqd.cron.schedules import Plan, Template
from jqd.domain.process import ALONE, Process
from jqd.domain.record import Lane
from jqd.testing.store import FakeStore
from tests.loops.house import TrioClock
from tests.loops.test_idle import daemon_of, no_edge

__all__ = ["no_edge"]

WRITING = frozenset({"find_silent", "get_outbox", "take_links"})
"""Calls of loops that write into the journal of the daemon that makes them."""


@pytest.mark.parametrize("process", [ALONE, Process(1, 1)])
async def test_its_journal_gets_no_jobs_and_no_ends(autojump_clock: None, process: Process) -> None:
    is_surplus = process.surplus is not None
    async with daemon_of("one", FakeStore(TrioClock()), process) as (daemon, store):
        services, journal = daemon.parts.services, daemon.journal
        await schedules.put(services, "tick", Plan(job=Template(name="tick"), every=5.0))
        await trio.sleep(30)
        assert (journal.last_end[Lane.CHANGES] == 0) is is_surplus, "dates are fired by others"
        assert WRITING & set(store.calls) == (set() if is_surplus else WRITING)
        assert daemon.control.push_ready() == process.surplus
        assert daemon.control.run_ready() == process.surplus
        shown = {family.name for family in daemon.control._samples()} & {"jqd_push_ready", "jqd_run_ready"}
        assert bool(shown) is not is_surplus, "nobody is alarmed that it is not ready"
