"""What carries jobs to a worker and its words back, apart from what they mean."""

from jqd.runner.transport.pool import Connections, Pool, make_pool
from jqd.runner.transport.post import End, Ending, Post

__all__ = ["Connections", "End", "Ending", "Pool", "Post", "make_pool"]
