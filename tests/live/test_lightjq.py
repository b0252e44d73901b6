"""A worker and a pusher that were written for LightJQ, and know nothing of jqd: what they say is in its document."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import msgspec
import pytest

from tests.live.harness import LEASE, ROOT, Daemon, pair

MSGPACK = "application/msgpack"
DOCUMENT: dict[str, Any] = msgspec.yaml.decode((ROOT / "tests/wire/lightjq.yaml").read_bytes())
pack, unpack = msgspec.msgpack.encode, msgspec.msgpack.decode


class Master:
    """The calls of LightJQ's document, and nothing besides."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, method: str, path: str, told: Any = None, *, into: str = "", **headers: str) -> tuple[int, Any]:
        """Status and value. Its document must have both."""
        call = DOCUMENT["paths"][path.partition("?")[0]][method.lower()]
        content = None if told is None else pack(told)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if content is not None:
            sent["content-type"] = MSGPACK
        target = self._url + path.replace("{job_id}", into)
        answer = httpx2.request(method, target, content=content, headers=sent, timeout=30)
        known = call["responses"][str(answer.status_code)]
        if "content" not in known:
            return answer.status_code, None
        assert answer.headers["content-type"] == MSGPACK
        value = unpack(answer.content)
        assert set(known["content"][MSGPACK]["schema"]["required"]) <= set(value)
        return answer.status_code, value


class Worker(ThreadingHTTPServer):
    """Registers by name, takes jobs at /worker-job, and reports them by /done, each in a thread of its own."""

    daemon_threads = True

    def __init__(self, master: Master) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.master = master
        self.worker_id = ""
        self.tries: list[str] = []

    def work(self, job: dict[str, Any]) -> None:
        """A job that is given is done, or fails as it is told to."""
        self.tries.append(job["name"])
        told: dict[str, Any] = {"job_id": job["job_id"], "type": "success", "result": {"seen": job["argument"]}}
        if "finished_at" in job["argument"]:
            told["finished_at"] = job["argument"]["finished_at"]
        if job["argument"].get("fail"):
            told = {"job_id": job["job_id"], "type": "failure", "reason": "other", "should_retry": False}
            told |= {"message": "it was told to fail", "error": {"code": 7}}
        assert self.master.ask("POST", "/done", told, worker_id=self.worker_id)[0] == 204


class _Taking(BaseHTTPRequestHandler):
    server: Worker

    def do_POST(self) -> None:
        assert (self.path, self.headers["content-type"]) == ("/worker-job", MSGPACK)
        job = unpack(self.rfile.read(int(self.headers["content-length"])))
        schema = DOCUMENT["paths"]["/worker-job"]["post"]["requestBody"]["content"][MSGPACK]["schema"]
        assert set(schema["required"]) <= set(job) <= set(schema["properties"])
        known = job["name"] == "greet"
        self.send_response(202 if known else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()
        if known:
            threading.Thread(target=self.server.work, args=[job], daemon=True).start()

    def log_message(self, *_: object) -> None:
        """Nothing: the test says what it needs."""


@contextmanager
def serving(worker: Worker) -> Iterator[Worker]:
    thread = threading.Thread(target=worker.serve_forever, daemon=True)
    thread.start()
    try:
        yield worker
    finally:
        worker.shutdown()
        thread.join()
        worker.server_close()


@pytest.fixture
def worker() -> Iterator[Worker]:
    """One whose master was told by its operator where it is reached."""
    with serving(Worker(Master(""))) as worker:
        url = f"http://127.0.0.1:{worker.server_port}"
        with pair({**LEASE, "JQD_API__LIGHTJQ_WORKERS": f"other=http://127.0.0.1:1 greeter={url}"}) as (_, one, two, _):
            worker.master = Master(one.url)
            yield worker
            assert (one.stop(), two.stop()) == (0, 0)


def test_a_worker_of_lightjq_is_given_jobs_and_a_pusher_polls_their_results(worker: Worker) -> None:
    master = worker.master
    status, told = master.ask("POST", "/worker", {"name": "greeter", "max_jobs": 2})
    worker.worker_id = told["worker_id"]
    job = {"name": "greet", "argument": {"to": "ann", "raw": b"\0\xff"}, "keep_result": True}
    good, bad = (
        master.ask("POST", "/job", {**job, "argument": {"to": "ann", "raw": b"\0\xff", **more}})[1]["job_id"]
        for more in ({}, {"fail": True})
    )
    status, told = master.ask("GET", "/job/{job_id}/polling?timeout=20", into=good)
    assert (status, told["status"], told["worker_id"]) == (200, "done", worker.worker_id)
    assert told["result"] == {"seen": job["argument"]}, "what was pushed came to the worker, and back, as it was"
    status, told = master.ask("GET", "/job/{job_id}/polling?timeout=20", into=bad)
    assert (status, told["status"], told["message"]) == (200, "error", "it was told to fail")
    assert (told["error"], told["retry_count"]) == ({"code": 7}, 0)
    assert master.ask("GET", "/job/{job_id}", into=good)[1]["status"] == "done"
    assert master.ask("DELETE", "/job/{job_id}", into=good)[0] == 409
    unknown = master.ask("POST", "/job", {"name": "nobody knows it", "argument": {}})[1]["job_id"]
    assert master.ask("GET", "/job/{job_id}/polling?timeout=0", into=unknown)[0] == 408
    assert master.ask("DELETE", "/worker", worker_id=worker.worker_id)[0] == 204
    assert master.ask("DELETE", "/worker", worker_id=worker.worker_id)[0] == 404
    assert worker.tries == ["greet", "greet"]


def test_what_its_document_lets_pass_is_taken_and_the_worker_s_date_is_shown(shared_daemon: Daemon) -> None:
    url = shared_daemon.url
    with serving(Worker(Master(url))) as worker:
        at = f"http://127.0.0.1:{worker.server_port}"
        card = {"name": "greeter", "max_jobs": 2, "url": at, "jobs": ["greet"], "since": 1999}
        told = httpx2.post(url + "/worker", content=pack(card))
        assert told.status_code == 201, "a field of nobody's, and no Content-Type: it is MessagePack"
        worker.worker_id = unpack(told.content)["worker_id"]
        argument = {"finished_at": "2031-02-03T04:05:06.789+09:00"}
        told = httpx2.post(url + "/job", content=pack({"name": "greet", "argument": argument, "colour": "red"}))
        assert told.status_code == 201
        job_id = unpack(told.content)["job_id"]
        told = worker.master.ask("GET", "/job/{job_id}/polling?timeout=20", into=job_id)[1]
        assert (told["status"], told["finished_at"]) == ("done", "2031-02-02T19:05:06.789Z")
        shown = shared_daemon.get(f"/v1/jobs/{job_id}").json()
        assert shown["worker_finished_at"] == "2031-02-02T19:05:06.789Z"
        assert shown["created_at"] <= shown["finished_at"] < "2031", "ours goes by our own clock"
        assert worker.master.ask("DELETE", "/worker", worker_id=worker.worker_id)[0] == 204
    for path, body, headers, status in (
        ("/job", pack({"name": "", "argument": 1}), {}, 400),
        ("/worker", pack({"name": "w", "max_jobs": 0}), {}, 400),
        ("/job", b"{}", {}, 400),
        ("/job", pack({"name": "a", "argument": 1}), {"origin": "http://evil.example"}, 403),
    ):
        assert httpx2.post(url + path, content=body, headers=headers).status_code == status
    paths = shared_daemon.get("/openapi.json").json()["paths"]
    for path, calls in DOCUMENT["paths"].items():
        for method in {"get", "post", "delete"} & calls.keys() if path != "/worker-job" else ():
            known = {status for status in paths[path][method]["responses"] if not status.endswith("XX")}
            assert known == {*calls[method]["responses"]}, f"{method} {path}"
