"""Chaining: `jqd/chaining/`."""
