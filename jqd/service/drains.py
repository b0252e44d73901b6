"""Draining daemons, said at any daemon: what such a one has in hand goes on, and it begins nothing more."""

from collections.abc import Mapping

from jqd.domain.errors import NotFound
from jqd.domain.pauses import DRAIN, body_of
from jqd.domain.settings import NIL
from jqd.service.services import Desk
from jqd.service.settings import say, told

THIS = "this"
"""Stands for the daemon that is asked."""


async def drain(desk: Desk, name: str) -> tuple[str, int]:
    """Have that daemon begin nothing, through restarts, until it is resumed: its name, and since when in ms.

    Raises NotFound, NotYet.
    """
    await told(desk)
    daemon, since_ms = _named(desk, name), list[int]()

    def make() -> Mapping[tuple[str, str], bytes]:
        # Said once more where it is so already: it may be resumed elsewhere, and this comes after that.
        known = daemon in desk.drains.names
        by = desk.drains.by.get(daemon, "") if known else desk.principal.token
        since_ms.append(desk.drains.since_ms.get(daemon, desk.clock.wall_ms()))
        return {(DRAIN, daemon): body_of(since_ms[0], by)}

    await say(desk, make)
    return daemon, since_ms[0]  # by now somebody else may have resumed it


async def resume(desk: Desk, name: str) -> tuple[str, bool]:
    """Have that daemon begin jobs again: its name, and whether it was drained. Raises NotFound, NotYet."""
    await told(desk)
    daemon = name if name in desk.drains.names else _named(desk, name)
    was_drained = daemon in desk.drains.names
    await say(desk, lambda: {(DRAIN, daemon): NIL})
    return daemon, was_drained


def _named(desk: Desk, name: str) -> str:
    for peer in desk.control.daemons():
        if peer.sysid == name or (peer.is_this and name == THIS):
            return peer.sysid
    raise NotFound(f"there is no daemon {name[:64]!r} here; `jqd daemons` lists those of this store")
