"""A web hook and line runner as a process, of the standard library alone: notes each request, and says what it is told.

a hook      its argument is {"say": [[status, headers, body], …]}, one for each time the job comes; else 204
/lines      answers each line with itself; a request of one line has the status that this line begins with
"""

import json
import sys
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

book = Path(sys.argv[1])
times: Counter[str] = Counter()


class Hook(BaseHTTPRequestHandler):
    """One request after another on a connection."""

    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        """Whatever the method."""
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        row = {
            "at_s": time.time(),
            "method": self.command,
            "path": self.path,
            "headers": {k.lower(): v for k, v in self.headers.items()},
        }
        with book.open("a") as file:
            file.write(json.dumps({**row, "body": body.decode("latin-1")}) + "\n")
        status, headers, said = 204, {}, b""
        if self.path == "/lines":
            status = 200 if body.count(b"\n") > 1 or not body[:3].isdigit() else int(body[:3])
            said = body
        elif body and self.headers.get("content-type") == "application/json":
            argument = json.loads(body)
            if isinstance(argument, dict) and "say" in argument:
                job_id = self.headers["jqd-job-id"]
                says = argument["say"]
                status, headers, text = says[min(times[job_id], len(says) - 1)]
                times[job_id] += 1
                said = text.encode("latin-1")
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_POST = do_PUT = do_GET = do_DELETE = answer

    def log_message(self, *_: object) -> None:
        """Not to stderr: the book has it all."""


with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)  # noqa: T201 - whoever starts it reads this
    server.serve_forever()
