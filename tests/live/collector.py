"""A collector of OpenTelemetry: keeps the spans that come over HTTP."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PRODUCER, CONSUMER = 4, 5  # kinds of spans
ERROR = 2  # of a status


class Collector:
    def __init__(self, url: str) -> None:
        self.url = url
        self.services: set[str] = set()
        self._spans: list[Any] = []
        self._lock = threading.Lock()

    def take(self, body: bytes) -> None:
        said = ExportTraceServiceRequest.FromString(body)
        with self._lock:
            for resource in said.resource_spans:
                named = {one.key: one.value.string_value for one in resource.resource.attributes}
                self.services.add(named["service.name"])
                self._spans += [span for scope in resource.scope_spans for span in scope.spans]

    def spans(self, name: str) -> list[Any]:
        """In the order in which they began."""
        with self._lock:
            return sorted((one for one in self._spans if one.name == name), key=lambda one: one.start_time_unix_nano)


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


@contextmanager
def collector() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            found.take(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Collector(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
