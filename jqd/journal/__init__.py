"""The local durable log. docs/build/JOURNAL.md describes its bytes."""

from jqd.journal.config import JournalConfig
from jqd.journal.files import Files
from jqd.journal.journal import Journal
from jqd.journal.opening import open_journal
from jqd.journal.reader import Reservation, Slice

__all__ = ["Files", "Journal", "JournalConfig", "Reservation", "Slice", "open_journal"]
