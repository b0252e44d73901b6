"""Before a seat is taken: can we read what our journal holds for the store?

A journal that a newer jqd wrote may hold kinds of frames or fields that this one does not know. A daemon that met them
only after it took a seat would end, be started again by its supervisor, take a seat again, and each seat that is not
through stops the claims of all daemons. So the daemon reads first, and refuses before the store knows of it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import trio

from jqd.journal import Journal, Slice
from jqd.words.errors import JournalDamaged, JournalVersion
from jqd.words.record import DECODERS, Lane

JOBS_S = 0.5  # some 50,000 jobs of a backlog: an unreadable one stops no other daemon, and is reported when it is met


async def expect_readable(journal: Journal, applied: Mapping[Lane, int]) -> None:
    """Read what the store has not applied. Raises JournalVersion, naming the place."""
    for lane, decode in DECODERS.items():
        with trio.move_on_after(JOBS_S if lane is Lane.JOBS else float("inf")):
            async with aclosing(journal.read_range(lane, applied[lane], journal.end)) as pieces:
                async for slices in pieces:
                    await trio.to_thread.run_sync(_decode, journal, decode, slices, abandon_on_cancel=True)


def _decode(journal: Journal, decode: Callable[[bytes], Sequence[Any]], slices: Sequence[Slice]) -> None:
    for piece in slices:
        try:
            decode(piece.body)
        except JournalDamaged as error:
            raise unreadable(journal, piece.start, error) from error


def unreadable(journal: Journal, position: int, error: JournalDamaged) -> JournalVersion:
    """What to say of a frame that is as it was written, and that we cannot read."""
    return JournalVersion(
        f"{journal.place_of(position)}: {error}. Most likely a newer jqd wrote it. Nothing was changed: run the "
        "version that wrote it, or a newer one; `jqd journal cat` shows what is there"
    )
