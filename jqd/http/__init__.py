"""An HTTP/1.1 listener on trio, which hands plain values to an application. Nothing of a connection leaves its task."""

from jqd.http.address import address_of, bind, listen, url_of
from jqd.http.asgi import from_asgi
from jqd.http.certificate import Certificate
from jqd.http.config import DoorConfig
from jqd.http.fairness import Urgency, by_address
from jqd.http.guard import Guard
from jqd.http.internal_error import place_of, say_fault
from jqd.http.large_bodies import SOME_BYTES, Large
from jqd.http.listener import Door, serve_http
from jqd.http.request import Answer, Asked, Heading, Stream, Write
from jqd.http.tls import tls_context

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
