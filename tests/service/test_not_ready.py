"""Searches are done one at a time, and no tenant's stand before all others'."""

import threading
from typing import Any

import trio

from jqd.service.listing import in_thread
from jqd.service.principal import Principal
from tests.api.whole import Whole


async def test_a_search_waits_for_one_of_each_other_tenant_at_most() -> None:
    services: Any = (await Whole().begin()).api._parts.services
    order: list[str] = []
    goes_on = threading.Event()

    async def search(tenant: str) -> None:
        await in_thread(services.as_principal(Principal(tenant)), goes_on.wait)
        order.append(tenant)

    async with trio.open_nursery() as nursery:
        for tenant in (*["acme"] * 20, "other"):
            nursery.start_soon(search, tenant)
            await trio.lowlevel.checkpoint()
        goes_on.set()
    assert (len(order), order.index("other") <= 2) == (21, True), order
