"""Limits of the HTTP edge, each with its unit and reason."""

from dataclasses import dataclass

from jqd.desk import DeskConfig
from jqd.words.units import Bytes, Seconds


@dataclass(frozen=True, slots=True)
class ApiConfig(DeskConfig):
    """What the edge takes and how long it waits: the desk's limits, and those of requests."""

    bodies_bytes_max: Bytes = 256 << 20  # of all requests at once: many large pushes must not eat the machine's memory
    request_s: Seconds = 30.0  # from the first byte of a request to its last: a stalled or dripped body ends here

    def __post_init__(self) -> None:
        DeskConfig.__post_init__(self)
        if not self.array_bytes_max <= self.bodies_bytes_max:
            raise ValueError(f"needed is array_bytes_max <= bodies_bytes_max; got {self}")
