"""The SDK for workers: turns functions into an HTTP worker. It imports nothing of the daemon.

Programs import from `jqd` itself: `jqd.App`, `jqd.current`, `jqd.Retry` and so on.
"""
