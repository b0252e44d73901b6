"""jqd: a durable, journal-based job queue daemon."""

__version__ = "0.1.0"
