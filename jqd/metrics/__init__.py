"""Metrics for Prometheus: this daemon's counters, and the store's numbers."""
