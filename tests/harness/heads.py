"""The headers of a request to a worker, as they go out."""

from jqd.runner.protocols.protocol import Request
from jqd.runner.transport.http1 import head_of


def headers_of(request: Request) -> dict[str, str]:
    """Header → its value; each may be there once."""
    _, *lines = head_of(request).decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert len(headers) == len(lines), lines
    return headers
