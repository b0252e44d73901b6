"""Limits of the HTTP edge, each with its unit and reason."""

from dataclasses import dataclass, field
from math import ceil
from typing import Annotated

from msgspec import Meta

from jqd.domain.setting_text import SECRET, WHOLE
from jqd.domain.units import Bytes, Seconds
from jqd.service import ServiceConfig

PUSHES = 12 / 16  # of the room for bodies, for all pushes that may wait for a turn
NamedUrls = Annotated[
    tuple[Annotated[str, Meta(pattern=r"^[^=]+=https?://.+$(?!\n)")], ...],
    Meta(description="a list of name=URL, such as mailer=http://127.0.0.1:8000"),
]


@dataclass(frozen=True, slots=True)
class ApiConfig(ServiceConfig):
    """What the edge takes and how long it waits: the service's limits, and those of requests."""

    bodies_bytes_max: Bytes = 256 << 20  # of all requests at once: many large pushes must not eat the machine's memory
    request_s: Seconds = 30.0  # from the first byte of a request to its last: a stalled or dripped body ends here
    master_key: str = field(default="", repr=False, metadata={SECRET: WHOLE})
    """Who shows it may push what is `server_only`, and everything through the Skygear surface. Empty: nobody is asked
    for it, and that surface takes nothing."""
    client_key: str = field(default="", repr=False, metadata={SECRET: WHOLE})
    """Of clients of Skygear, who may call nothing that there is here, and are told so."""
    lightjq_wait_s_max: Seconds = 86_400.0  # its polls: its interface has no limit, and says 408 when the time is over
    lightjq_workers: NamedUrls = field(default=(), metadata={SECRET: True})  # a URL may have a password in it
    """Where LightJQ workers are reached that register without a `url`, as their interface has it: by their names."""

    def __post_init__(self) -> None:
        ServiceConfig.__post_init__(self)
        if self.array_bytes_max > self.bodies_bytes_max * PUSHES:
            raise ValueError(
                f"bodies_bytes_max = {self.bodies_bytes_max} must be at least {ceil(self.array_bytes_max / PUSHES)}: "
                f"the largest array, array_bytes_max = {self.array_bytes_max}, must fit into what pushes have of it"
            )
        if self.client_key and self.client_key == self.master_key:
            raise ValueError("client_key and master_key must differ: clients would be masters")
