"""What carries jobs to a worker and its words back, apart from what they mean."""

from jqd.runner.carry.carrier import Carrier, End, Ending
from jqd.runner.carry.pool import Connections, Pool, make_pool
from jqd.runner.carry.post import Post

__all__ = [
    "Carrier",
    "Connections",
    "End",
    "Ending",
    "Pool",
    "Post",
    "make_pool",
]
