"""The local durable log. docs/JOURNAL.md has the bytes."""

from jqd.journal.cursor import Reservation, Slice
from jqd.journal.files import Files, OsFiles
from jqd.journal.journal import Journal, JournalConfig, JournalStats
from jqd.journal.opening import open_journal

__all__ = ["Files", "Journal", "JournalConfig", "JournalStats", "OsFiles", "Reservation", "Slice", "open_journal"]
