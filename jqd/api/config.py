"""Settings of the HTTP API."""

from dataclasses import dataclass, field
from math import ceil
from typing import Annotated

from msgspec import Meta

from jqd.domain.setting_text import SECRET, WHOLE
from jqd.domain.units import Bytes, Seconds
from jqd.http import PUSHES
from jqd.service import ServiceConfig

NamedUrls = Annotated[
    tuple[Annotated[str, Meta(pattern=r"^[^=]+=https?://.+$(?!\n)")], ...],
    Meta(description="a list of name=URL, such as mailer=http://127.0.0.1:8000"),
]


@dataclass(frozen=True, slots=True)
class ApiConfig(ServiceConfig):
    """Limits of requests and waits; those of the service are part of them."""

    bodies_bytes_max: Bytes = 256 << 20
    """Memory for the bodies of all requests together, three quarters of it for pushes; lower it on a small machine.
    Allowed: above 0, four thirds of `api.array_bytes_max` or more"""
    request_s: Seconds = 30.0
    """The longest time from the first byte of a request to its last."""
    master_key: str = field(default="", repr=False, metadata={SECRET: WHOLE})
    """Requests with this key may push `server_only` jobs, and use the Skygear API (DIALECTS.md#skygear). If tokens are
    needed, it counts as a token of a master of *all* tenants (SECURITY.md#roles).
    Allowed: a text; where tokens are needed 16 characters or more"""
    client_key: str = field(default="", repr=False, metadata={SECRET: WHOLE})
    """The key of Skygear's clients, which the Skygear API answers with 403, not 401. If tokens are needed, it counts as
    a token of the role `push` of the tenant `""`.
    Allowed: a text, another one than the master key; as long"""
    lightjq_wait_s_max: Seconds = 86_400.0
    """The longest `timeout` of a LightJQ poll, for which LightJQ itself has no limit; see `api.wait_s_max`."""
    lightjq_workers: NamedUrls = field(default=(), metadata={SECRET: True})
    """The URLs of LightJQ workers that register without a `url` (DIALECTS.md#lightjq).
    Allowed: `name=URL`, several with blanks between"""

    def __post_init__(self) -> None:
        ServiceConfig.__post_init__(self)
        if self.array_bytes_max > self.bodies_bytes_max * PUSHES:
            raise ValueError(
                f"bodies_bytes_max = {self.bodies_bytes_max} must be at least {ceil(self.array_bytes_max / PUSHES)}: "
                f"the largest array, array_bytes_max = {self.array_bytes_max}, must fit into what pushes have of it"
            )
        if self.client_key and self.client_key == self.master_key:
            raise ValueError("client_key and master_key must differ: clients would be masters")
