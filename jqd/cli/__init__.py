"""argv → one call → render; exit codes. Data on stdout, talk on stderr."""

from jqd.cli.app import run

__all__ = ["run"]
