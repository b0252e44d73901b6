"""An HTTP/1.1 listener on trio, which hands plain values to an application. Nothing of a connection leaves its task."""

from jqd.doors.address import address_of, bind, listen, url_of
from jqd.doors.asgi import from_asgi
from jqd.doors.asked import Answer, Asked, Heading, Stream, Write
from jqd.doors.certificate import Certificate
from jqd.doors.config import DoorConfig
from jqd.doors.fault import place_of, say_fault
from jqd.doors.guard import Guard
from jqd.doors.large import SOME_BYTES, Large
from jqd.doors.listener import Door, serve_http
from jqd.doors.tls import tls_context
from jqd.doors.turns import Urgency, by_address

__all__ = [
    "SOME_BYTES",
    "Answer",
    "Asked",
    "Certificate",
    "Door",
    "DoorConfig",
    "Guard",
    "Heading",
    "Large",
    "Stream",
    "Urgency",
    "Write",
    "address_of",
    "bind",
    "by_address",
    "from_asgi",
    "listen",
    "place_of",
    "say_fault",
    "serve_http",
    "tls_context",
    "url_of",
]
