"""The command line. Each command makes one call, prints its data on stdout and notes on stderr, and returns an exit
code."""

from jqd.cli.app import run

__all__ = ["run"]
