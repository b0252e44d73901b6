"""The same work with other job queues, each installed into an environment of its own: `python -m bench peers`."""
