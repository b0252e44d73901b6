"""Handlers that are code, without a daemon."""
