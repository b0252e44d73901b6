"""An HTTP/1.1 server on trio. It knows nothing of jobs. It calls an application, which gets a request and returns a
response."""

from jqd.http.address import address_of, bind, listen, reserve, url_of
from jqd.http.asgi import from_asgi
from jqd.http.config import ListenerConfig
from jqd.http.fairness import Urgency, by_address
from jqd.http.guard import Guard
from jqd.http.internal_error import log_internal_error, place_of
from jqd.http.large_bodies import LargeBodyQueue
from jqd.http.listener import Listener, serve_http
from jqd.http.request import (
    PUSHES,
    SOME_BYTES,
    BodyBudget,
    Foreign,
    Owner,
    Refused,
    Request,
    RequestHead,
    Response,
    Stream,
    Write,
    answer,
    too_large,
)
from jqd.http.tls import Certificate, tls_context

__all__ = [
    "PUSHES",
    "SOME_BYTES",
    "BodyBudget",
    "Certificate",
    "Foreign",
    "Guard",
    "LargeBodyQueue",
    "Listener",
    "ListenerConfig",
    "Owner",
    "Refused",
    "Request",
    "RequestHead",
    "Response",
    "Stream",
    "Urgency",
    "Write",
    "address_of",
    "answer",
    "bind",
    "by_address",
    "from_asgi",
    "listen",
    "log_internal_error",
    "place_of",
    "reserve",
    "serve_http",
    "tls_context",
    "too_large",
    "url_of",
]
