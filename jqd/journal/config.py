"""Settings of the journal."""

from dataclasses import dataclass
from pathlib import Path

from jqd.domain.units import Bytes, Seconds, Span
from jqd.journal.frame import FRAME_HEADER_BYTES

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class JournalConfig:
    """Where the journal lies and how large its parts may grow."""

    directory: Path
    """`journal` in `data_dir`, if nothing is set; set it to have the journal on a disk of its own."""
    segment_bytes: Bytes = 64 * MIB
    """One file; files are deleted as a whole."""
    segment_age_s: Seconds = 3_600.0
    """A file older than this is closed, so that it can be deleted one day."""
    frame_bytes_max: Bytes = 32 * MIB
    """One push in the journal; raise it with `api.array_bytes_max`.
    Allowed: what a push of `api.array_bytes_max` needs, and less than `journal.pending_bytes_max`"""
    commit_bytes_max: Bytes = 8 * MIB
    """One write and sync."""
    commit_linger_ms: Span = 0.0
    """A sync waits so long for more pushes; a few on a disk with slow syncs.
    Allowed: milliseconds, 0 or more"""
    pending_bytes_max: int = 64 * MIB
    """What may wait for the disk before pushes are refused; workers' reports have `journal.frame_bytes_max` more.
    Allowed: more than `journal.frame_bytes_max`"""
    retry_s: Seconds = 0.5
    """How often a disk that refused is tried again."""
    retention_s: Span = 86_400.0
    """How long applied records stay here: a store set back by less can be rebuilt.
    Allowed: 0 or more"""
    retention_bytes: int = 4 << 30
    """Most bytes of applied records here; lower it on a small disk.
    Allowed: 0 or more"""
    others_s: Span = 86_400.0
    """Outcomes and cancels stay at most so much longer, for jobs of other daemons.
    Allowed: 0 or more"""
    others_bytes: int = 4 << 30
    """And at most this many more bytes.
    Allowed: 0 or more"""

    def __post_init__(self) -> None:
        if self.frame_bytes_max > self.pending_bytes_max - FRAME_HEADER_BYTES:
            raise ValueError(f"a frame of frame_bytes_max must fit into pending_bytes_max; got {self}")
