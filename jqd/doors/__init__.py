"""An HTTP/1.1 listener on trio, with ASGI applications behind it. Nothing of a connection leaves its task."""

from jqd.doors.address import address_of, bind, listen, url_of
from jqd.doors.config import DoorConfig
from jqd.doors.fault import place_of, say_fault
from jqd.doors.guard import Guard
from jqd.doors.listener import serve_http

__all__ = [
    "DoorConfig",
    "Guard",
    "address_of",
    "bind",
    "listen",
    "place_of",
    "say_fault",
    "serve_http",
    "url_of",
]
