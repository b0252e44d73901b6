"""Sends requests to workers and reads their answers, without knowing what they mean."""

from jqd.runner.transport.large_reads import LargeReads
from jqd.runner.transport.pool import Connections, Pool, make_pool
from jqd.runner.transport.post import End, Ending, Post

__all__ = ["Connections", "End", "Ending", "LargeReads", "Pool", "Post", "make_pool"]
