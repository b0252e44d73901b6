"""Constraints: `jqd/rate_limits/`."""
