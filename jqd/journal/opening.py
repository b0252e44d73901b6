"""Opens a journal and runs its commits."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager

import trio

from jqd.domain.clock import Clock
from jqd.domain.errors import JournalRefused
from jqd.domain.jobid import SALT_BITS
from jqd.journal.config import JournalConfig
from jqd.journal.files import Files, holding
from jqd.journal.journal import Journal
from jqd.journal.recover import recover
from jqd.journal.writer import FULL, Writer


@asynccontextmanager
async def open_journal(
    config: JournalConfig,
    *,
    clock: Clock,
    files: Files | None = None,
    journal_id: bytes | None = None,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> AsyncIterator[Journal]:
    """Lock the directory, recover its segments, begin a new segment, and commit until the block ends.

    `journal_id`: a new id for the journal, for a directory that turned out to be a copy; positions go on growing.

    If the disk allows no new segment now, because it is full for example, the journal starts, refuses writes, and
    resumes by itself. Raises JournalLocked; JournalVersion; JournalDamaged; JournalRefused when the directory cannot be
    used at all."""
    disk = files or Files()
    with ExitStack() as stack:
        try:
            lock = stack.enter_context(holding(disk, config.directory))
            found = await trio.to_thread.run_sync(recover, disk, config.directory)
        except OSError as error:
            raise JournalRefused(
                f"the journal in {config.directory} cannot be opened: {error}. Nothing was changed; "
                "mend the directory or its disk, or choose another with --data-dir",
                full=error.errno in FULL,
            ) from error
        if found.journal_id is None:
            found.journal_id, found.is_new = journal_id or random_bytes(16), True
        elif journal_id not in (None, found.journal_id):
            found.before, found.journal_id = found.journal_id, journal_id
        assert found.journal_id is not None
        writer = Writer(
            disk, config.directory, found.journal_id, before=found.before, lock=lock, random_bytes=random_bytes
        )
        salt = int.from_bytes(random_bytes(3), "big") & (1 << SALT_BITS) - 1
        try:
            journal = Journal(config, clock, disk, writer, found, salt)
            await trio.to_thread.run_sync(journal.begin)
            try:
                async with _at_work(journal):
                    yield journal
            finally:
                journal.close()
        finally:
            writer.close()


@asynccontextmanager
async def _at_work(journal: Journal) -> AsyncIterator[None]:
    """Run the commit task during the block. An error of the block is raised as it is, not in an exception group."""
    failed: BaseException | None = None
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.run)
        try:
            yield
        except BaseException as error:  # noqa: BLE001  raised again below, outside the nursery
            failed = error
        nursery.cancel_scope.cancel()
    if failed is not None:
        raise failed
