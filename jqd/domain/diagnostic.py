"""What checks of a store's server or of a disk have found: settings with which jobs would be lost, and conditions that
an operator should know of."""

import enum

import msgspec


class Severity(enum.StrEnum):
    REFUSE = "refuse"
    """Jobs would be lost. The daemon does not start, or takes no more jobs into that store until this is corrected."""
    WARN = "warn"
    """The daemon runs, but an operator should look into it."""


# Codes with which the store cannot be used at all, whatever its operator accepts.
UNUSABLE = frozenset({"no_entry", "no_store", "tls", "acl_narrow", "partitions", "partition_elsewhere"})

# Codes of a server's state, not of its settings: they may come, and go, while a daemon runs.
PASSING = frozenset(
    {
        "nearly_full",
        "no_library",
        "many_dead",
        "aof_write_failed",
        "aof_rewrite_failed",
        "snapshot_failed",
        "clocks_apart",
        "disk_nearly_full",
        "disk_read_only",
        "disk_silent",
        "no_root_file",
    }
)


class Diagnostic(msgspec.Struct, frozen=True):
    code: str
    """A name of the finding for programs. It stays the same if the text changes."""
    severity: Severity
    what: str
    why: str
    mend: str

    def __str__(self) -> str:
        stop = "" if self.why.endswith((".", "?", "!")) else "."
        return f"{self.what}: {self.why}{stop} To mend it: {self.mend}"

    @property
    def is_acceptable(self) -> bool:
        """Return True if the daemon could use the store in spite of this finding, at the risk of losing jobs, which an
        operator may accept. False if it cannot use the store at all."""
        return self.code not in UNUSABLE


def refusals(findings: list[Diagnostic]) -> list[Diagnostic]:
    return [finding for finding in findings if finding.severity is Severity.REFUSE]
