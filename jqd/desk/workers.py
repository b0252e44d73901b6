"""Who runs jobs here: registering and leaving."""

from jqd.desk.desk import Desk
from jqd.runner import Card, Worker
from jqd.words.errors import NotFound


async def register(desk: Desk, card: Card, *, peer: str | None) -> Worker:
    """Take a registration, or its repetition; it is on disk when this returns, where it is to outlive the daemon.

    `peer`: the address it came from. Raises Invalid.
    """
    await desk.workers.judge(card.url, peer)
    worker = desk.workers.register(card, peer=peer)
    await desk.workers.wait_saved()
    return worker


async def unregister(desk: Desk, worker_id: str) -> None:
    """Forget a worker; what it has in hand is still waited for. Raises NotFound."""
    if not desk.workers.unregister(worker_id):
        raise NotFound(f"there is no worker {worker_id[:64]!r}")
    await desk.workers.wait_saved()
