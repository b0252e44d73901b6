"""What becomes of a lease, and of what is known of handlers, whatever the daemon answers."""

from collections.abc import Callable, Sequence
from typing import Any

import httpx2
import msgspec
import pytest
import trio
from trio.testing import MockClock

from jqd.code.batch import Batch
from jqd.code.catalogue import BROKEN_S, LOOK_S, REST_S_MAX, Catalogue
from jqd.code.config import CodeConfig, Sandbox
from jqd.code.context import CODE, Broken
from jqd.code.outcome import failed, succeeded
from jqd.code.output import NO_LOG, JobOutput, Log
from jqd.code.worker import STRUCK_MAX, CodeLease, Home
from jqd.runner.worker import TROUBLE_MAX
from jqd.testing.clock import ManualClock
from jqd.worker.lease import REPORT_BYTES_MAX
from jqd.worker.register import Slots
from tests.code.conftest import handler, job

URL = "http://daemon"


class FakeDaemon:
    """Answers with what `answers` says, else 200, and notes what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[Any], tuple[int, Any]]] = {}
        self.asked: list[tuple[str, Any]] = []
        self.http = httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        body = msgspec.msgpack.decode(request.content) if request.content else dict(request.url.params)
        path = request.url.path
        self.asked.append((path, body))
        status, told = self.answers.get(path, lambda body: (200, {}))(body)
        if status == 0:
            raise httpx2.ConnectError("away")
        return httpx2.Response(status, content=msgspec.msgpack.encode(told))

    def reported(self) -> list[dict[str, Any]]:
        return [one for path, body in self.asked if path == "/v1/outcomes" for one in body]


@pytest.fixture
def daemon() -> FakeDaemon:
    return FakeDaemon()


async def settled(daemon: FakeDaemon, lease: CodeLease) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lease.report)
        nursery.start_soon(lease.beat)
        await lease.wait_taken()
        nursery.cancel_scope.cancel()
    await daemon.http.aclose()


def lease_of(daemon: FakeDaemon, *ids: str) -> CodeLease:
    return CodeLease("7", [job(job_id=one) for one in ids], daemon.http, lambda: URL, 9.0, lambda: None)


def taken(body: Any) -> tuple[int, Any]:
    return 200, {"outcomes": [{"job_id": one["job_id"], "status": 200} for one in body]}


async def test_an_outcome_is_sent_until_it_is_taken(daemon: FakeDaemon, autojump_clock: None) -> None:
    troubles = [(0, {}), (503, {}), (200, {"outcomes": [{"status": 503}]}), (200, "nonsense")]
    daemon.answers["/v1/outcomes"] = lambda body: troubles.pop(0) if troubles else taken(body)
    lease = lease_of(daemon, "a")
    lease.put(succeeded(job(job_id="a"), {"x": 1}, [{"name": "n"}], NO_LOG))
    await settled(daemon, lease)
    assert [one["result"] for one in daemon.reported()] == [{"x": 1}] * 5
    assert daemon.reported()[0] == {
        "job_id": "a",
        "lease_id": "7",
        "status": 200,
        "result": {"x": 1},
        "jobs": [{"name": "n"}],
    }


@pytest.mark.parametrize(
    "refused", [(413, {}), (400, {}), (200, {"outcomes": [{"status": 422, "detail": "jobs: no name"}]})]
)
async def test_an_outcome_that_cannot_be_taken_fails_its_job(
    daemon: FakeDaemon, autojump_clock: None, refused: tuple[int, Any]
) -> None:
    daemon.answers["/v1/outcomes"] = lambda body: refused if body[0]["status"] == 200 else taken(body)
    lease = lease_of(daemon, "a")
    lease.put(succeeded(job(job_id="a"), "much", [], NO_LOG))
    await settled(daemon, lease)
    last = daemon.reported()[-1]
    assert (last["status"], last["message"].split(":")[0]) == (422, "INVALID_RESPONSE")


@pytest.mark.parametrize("status", [400, 413])
async def test_outcomes_that_are_refused_together_are_sent_in_fewer_until_one_is_to_blame(
    daemon: FakeDaemon, autojump_clock: None, status: int
) -> None:
    """As many that have large jobs to follow, or one that no daemon can read: the others are taken, and no slot is held
    up for good."""

    def answered(body: Any) -> tuple[int, Any]:
        return (status, {}) if any(one.get("result") == "bad" for one in body) or len(body) > 3 else taken(body)

    daemon.answers["/v1/outcomes"] = answered
    ids = [f"j{n}" for n in range(9)]
    lease = lease_of(daemon, *ids)
    for name in ids:
        lease.put(succeeded(job(job_id=name), "bad" if name == "j4" else "good", [], NO_LOG))
    with trio.fail_after(600):
        await settled(daemon, lease)
    last = {one["job_id"]: one["status"] for one in daemon.reported()}
    assert last == dict.fromkeys(ids, 200) | {"j4": 422}


@pytest.mark.parametrize(("bad", "kept"), [(1, 3), (STRUCK_MAX + 1, 0)])
async def test_a_line_that_asks_for_no_job_fails_no_success(
    daemon: FakeDaemon, autojump_clock: None, bad: int, kept: int
) -> None:
    """Of many all lines go, so that one outcome is no thousand reports."""

    def answered(body: Any) -> tuple[int, Any]:
        (one,) = body
        wrong = [at for at, each in enumerate(one.get("jobs", ())) if each["name"] == "bad"]
        if not wrong:
            return taken(body)
        why = f"jobs: jobs/{wrong[0]}/name: it is bad; nothing of this outcome was taken"
        return 200, {"outcomes": [{"status": 422, "detail": why}]}

    daemon.answers["/v1/outcomes"] = answered
    lease = lease_of(daemon, "a")
    jobs = [{"name": name} for name in ["good", *["bad"] * bad, "good", "good"]]
    lease.put(succeeded(job(job_id="a"), 1, jobs, Log(0, "printed")))
    began_s = trio.current_time()
    await settled(daemon, lease)
    assert trio.current_time() - began_s < 1, "each report is sent at once"
    last = daemon.reported()[-1]
    assert (last["status"], last["result"], len(last.get("jobs", ()))) == (200, 1, kept)
    said = last["log"].split("\n")
    assert (said[0], len(said)) == ("printed", 1 + min(bad, STRUCK_MAX))
    assert said[1] == "jqd: no job was pushed for 'J: bad': jobs/1/name: it is bad"


async def test_reports_are_bounded_with_all_that_they_have(daemon: FakeDaemon, autojump_clock: None) -> None:
    daemon.answers["/v1/outcomes"] = taken
    ids = [f"j{n}" for n in range(5)]
    lease = lease_of(daemon, *ids)
    for name in ids:
        follows = [{"name": "n", "argument": "x" * (REPORT_BYTES_MAX // 2 - 1000)}]
        lease.put(succeeded(job(job_id=name), None, follows, NO_LOG))
    await settled(daemon, lease)
    assert [len(body) for path, body in daemon.asked if path == "/v1/outcomes"] == [2, 2, 1]


async def test_all_jobs_of_a_large_lease_are_heard_in_time_by_a_slow_daemon(autojump_clock: None) -> None:
    """One after the other, the last of a hundred would be heard after 30 s, and run elsewhere meanwhile."""
    heard = dict.fromkeys([f"j{n}" for n in range(100)], trio.current_time())
    silences: list[float] = []

    async def answer(request: httpx2.Request) -> httpx2.Response:
        await trio.sleep(0.3)
        job_id = request.url.path.split("/")[3]
        silences.append(trio.current_time() - heard[job_id])
        heard[job_id] = trio.current_time()
        return httpx2.Response(200, content=msgspec.msgpack.encode({}))

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        lease = CodeLease("7", [job(job_id=one) for one in heard], http, lambda: URL, 9.0, lambda: None)
        with trio.move_on_after(60):
            await lease.beat()
    assert len(silences) > len(heard)
    assert max(silences) < 9


async def test_a_job_that_is_not_ours_any_more_is_let_go(daemon: FakeDaemon, autojump_clock: None) -> None:
    """By a heartbeat, or by its report: no more is said of it, and what runs is told."""
    daemon.answers["/v1/jobs/a/heartbeat"] = lambda body: (409, {})
    daemon.answers["/v1/outcomes"] = lambda body: (200, {"outcomes": [{"status": 409, "detail": "late"}]})
    lease = lease_of(daemon, "a", "b")
    lease.batch = Batch(handler("python", ""), lease.jobs, lease.put, lease.unwanted)
    lease.put(failed(job(job_id="b"), "no"))
    await settled(daemon, lease)
    assert lease.unwanted == {"a": True}
    lease.batch.skip_unwanted()
    assert [one.job_id for one in lease.batch.left] == ["b"]
    lease.put(failed(job(job_id="a"), "too late"))
    assert {one["job_id"] for one in daemon.reported()} == {"b"}


async def test_a_cancel_comes_with_a_heartbeat_and_lines_go_with_it(daemon: FakeDaemon, autojump_clock: None) -> None:
    told = [{"log_end": 4}, {"log_end": 4}, {"cancelled": True}]
    daemon.answers["/v1/jobs/a/heartbeat"] = lambda body: (200, told.pop(0) if told else {})
    daemon.answers["/v1/outcomes"] = taken
    lease = lease_of(daemon, "a")
    batch = lease.batch = Batch(handler("python", ""), lease.jobs, lease.put, lease.unwanted)

    output = type("Output", (), {"since": lambda self, start: Log(start, "line")})()
    batch.printed = lambda job_id: output  # type: ignore[method-assign]

    async def skip() -> None:
        while not lease.unwanted:
            await trio.sleep(1)
        batch.skip_unwanted()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(skip)
        await settled(daemon, lease)
    beats = [body for path, body in daemon.asked if path.endswith("heartbeat")]
    assert beats[0] == {"lease_id": "7"}
    assert beats[1] == {"lease_id": "7", "log": "line", "log_from": 4}
    assert [one["status"] for one in daemon.reported()] == [499]


async def test_what_a_followed_job_prints_is_sent_once_a_second(daemon: FakeDaemon, autojump_clock: None) -> None:
    """It came with the signs of life: the first lines after six seconds and more, the others every three."""
    sent: list[tuple[float, str]] = []
    began_s, printed = trio.current_time(), JobOutput(1 << 20)

    def beaten(body: Any) -> tuple[int, Any]:
        sent.append((trio.current_time() - began_s, body.get("log", "")))
        return 200, {"log_end": sum(len(log) + 1 for _, log in sent if log)}

    daemon.answers["/v1/jobs/a/heartbeat"] = beaten
    daemon.answers["/v1/outcomes"] = taken
    lease = lease_of(daemon, "a")
    batch = lease.batch = Batch(handler("python", ""), lease.jobs, lease.put)
    batch.printed = lambda job_id: printed  # type: ignore[method-assign]

    async def work() -> None:
        await trio.sleep(0.5)
        for second in range(8):
            printed.printed(b"%d\n" % second if second < 6 else b"")
            await trio.sleep(1)
        lease.put(succeeded(job(job_id="a"), 1, (), Log(0, "")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await settled(daemon, lease)
    lines = [(round(at_s), log) for at_s, log in sent if log]
    assert lines == [(4, "0\n1\n2\n3"), (5, "4"), (6, "5")]
    assert len(sent) <= len(lines) + 2, "nothing new, nothing sent but signs of life"


class Known:
    """A catalogue of a fake daemon, whose handlers are `rows`."""

    def __init__(self, daemon: FakeDaemon, tenant: str = "", scopes: Sequence[str] = ()) -> None:
        self.rows: list[dict[str, Any]] = []
        self.old: dict[str, dict[str, Any]] = {}
        self.changes = 0
        daemon.answers["/v1/handlers"] = self._page
        self.catalogue = Catalogue(daemon.http, lambda: URL, tenant, ManualClock(), self._changed, scopes=scopes)
        self._daemon = daemon

    def put(self, name: str, version: int, lang: str = "python", **fields: Any) -> None:
        row = {"name": name, "version": version, "lang": lang, "body": "1", "options": {"batch": None}} | fields
        langs = [self.old[f"{name}@{one}"]["lang"] for one in range(1, version)] + [lang]
        row["versions"] = [{"version": one, "lang": lang, "out": None} for one, lang in enumerate(langs, 1)]
        self.rows = [one for one in self.rows if one["name"] != name] + [row]
        self.old[f"{name}@{version}"] = row
        path = f"/v1/handlers/{name}"
        self._daemon.answers[path] = lambda query: (200, self.old[f"{name}@{query['version']}"])

    def _page(self, query: Any) -> tuple[int, Any]:
        at = int(query.get("cursor", "0"))
        more = str(at + 1) if at + 1 < len(self.rows) else ""
        return 200, {"handlers": self.rows[at : at + 1], "cursor": more}

    def _changed(self) -> None:
        self.changes += 1


async def test_names_and_versions_in_code_are_taken_and_nothing_else(daemon: FakeDaemon, autojump_clock: None) -> None:
    known = Known(daemon)
    known.put("url", 1, "http")
    known.put("both", 1)
    known.put("both", 2, "http")
    known.put("mail", 1)
    known.put("mail", 2, "sh")
    known.put("theirs", 1, tenant="acme")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(known.catalogue.run)
        await trio.sleep(LOOK_S / 2)
        assert sorted(known.catalogue.jobtypes) == ["both@1", "mail", "mail@1", "mail@2"]
        found = [known.catalogue.find(name) for name in ("mail", "mail@1", "both", "both@1", "url", "theirs", "mail@9")]
        assert [one and one.called for one in found] == ["mail@2", "mail@1", None, "both@1", None, None, None]
        asked = len(daemon.asked)
        known.put("mail", 3)
        await trio.sleep(LOOK_S * 1.5)
        newest = known.catalogue.find("mail")
        assert newest is not None
        assert newest.called == "mail@3"
        assert known.changes == 2
        assert not any(path.startswith("/v1/handlers/") for path, _ in daemon.asked[asked:]), (
            "what is known never changes"
        )
        daemon.answers["/v1/handlers"] = lambda query: (0, {})
        await trio.sleep(LOOK_S * 3)
        assert "mail" in known.catalogue.jobtypes, "a daemon that is away changes nothing"
        nursery.cancel_scope.cancel()


async def test_of_a_token_for_one_version_that_version_alone_is_taken(daemon: FakeDaemon, autojump_clock: None) -> None:
    """The plain name is another jobtype, for which its registration would be refused."""
    known = Known(daemon, scopes=["mail@1", "pay"])
    known.put("mail", 1)
    known.put("pay", 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(known.catalogue.run)
        await trio.sleep(LOOK_S / 2)
        assert sorted(known.catalogue.jobtypes) == ["mail@1", "pay", "pay@1"]
        nursery.cancel_scope.cancel()


async def test_what_is_broken_rests_says_so_and_is_tried_again(daemon: FakeDaemon, autojump_clock: None) -> None:
    known = Known(daemon)
    known.put("mail", 1, before="import nothing")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(known.catalogue.run)
        await trio.sleep(LOOK_S / 2)
        definition = known.catalogue.find("mail")
        assert definition is not None
        known.catalogue.broke(definition, Broken("Traceback:\n no\x00thing"))
        assert list(known.catalogue.jobtypes) == ["mail@1"], "it names something, that its trouble may be read"
        assert known.catalogue.is_resting(definition)
        assert known.catalogue.trouble.startswith("handler mail@1 is broken since ")
        assert known.catalogue.trouble.isprintable()
        await trio.sleep(BROKEN_S + LOOK_S)
        assert set(known.catalogue.jobtypes) == {"mail", "mail@1"}
        assert known.catalogue.trouble, "until a batch has run"
        known.catalogue.mended(definition)
        assert known.catalogue.trouble == ""
        known.catalogue.broke(definition, Broken("again"))
        known.put("mail", 2, before="import json")
        await trio.sleep(LOOK_S * 1.5)
        assert "mail" in known.catalogue.jobtypes, "the new version is not broken"
        nursery.cancel_scope.cancel()


async def test_a_stall_delays_the_next_look_by_seconds(daemon: FakeDaemon, autojump_clock: MockClock) -> None:
    known = Known(daemon)
    looks, page = [trio.current_time()], daemon.answers["/v1/handlers"]

    def stalled(query: Any) -> tuple[int, Any]:
        looks.append(trio.current_time())
        if len(looks) == 2:
            autojump_clock.jump(60)  # the machine stands still
        return page(query)

    daemon.answers["/v1/handlers"] = stalled
    async with trio.open_nursery() as nursery:
        nursery.start_soon(known.catalogue.run)
        await trio.sleep(60 + 2 * REST_S_MAX)
        nursery.cancel_scope.cancel()
    assert looks[2] - looks[1] == 60 + REST_S_MAX


async def test_each_broken_handler_has_its_share_of_what_the_worker_says(
    daemon: FakeDaemon, autojump_clock: None
) -> None:
    known = Known(daemon)
    for number in range(100):
        known.put(f"h{number}", 1, before=f"import no{number}")
    known.put("twin", 1, before="import no0", eid="e")
    known.put("pair", 1, before="import no0", eid="e")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(known.catalogue.run)
        await trio.sleep(LOOK_S * 4)
        twin = known.catalogue.find("twin")
        assert twin is not None
        known.catalogue.broke(
            twin, Broken("Error: away; handler h1@1 is broken\n    at one (before:1:2)\n    at two (before:1:2)")
        )
        said = known.catalogue.trouble.split("; ")
        assert [one.split()[1] for one in said] == ["twin@1", "pair@1"], "both have that `before`"
        assert all(one.endswith("its before failed: Error: away handler h1@1 is broken") for one in said), said
        for number in range(100):
            each = known.catalogue.find(f"h{number}")
            assert each is not None
            known.catalogue.broke(each, Broken(f"no module no{number} " + "x" * 500))
        said = known.catalogue.trouble.split("; ")
        assert len(known.catalogue.trouble) <= TROUBLE_MAX
        assert len(said) > 70
        assert said[-1] == f"and {102 - len(said) + 1} more: see this worker's log"
        nursery.cancel_scope.cancel()


async def test_code_that_does_not_compile_rests_alone(daemon: FakeDaemon, autojump_clock: None) -> None:
    known = Known(daemon)
    known.put("mail", 1, eid="e")
    known.put("post", 1, eid="e")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(known.catalogue.run)
        await trio.sleep(LOOK_S / 2)
        mail = known.catalogue.find("mail")
        assert mail is not None
        known.catalogue.broke(mail, Broken("line 1", CODE))
        assert known.catalogue.is_resting(mail)
        assert list(known.catalogue.jobtypes) == ["post", "post@1"]
        assert "its code does not compile: line 1" in known.catalogue.trouble
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("answer", "sandbox", "wrong"),
    [
        ((200, {"role": "worker", "tenant": "acme", "scopes": []}), "none", "add --sandbox bwrap"),
        ((401, {}), "bwrap", "needs a token of the role worker"),
    ],
)
async def test_a_worker_that_may_not_run_this_code_ends(
    daemon: FakeDaemon, answer: tuple[int, Any], sandbox: Sandbox, wrong: str
) -> None:
    daemon.answers["/v1/me"] = lambda query: answer
    home = Home(URL, daemon.http, "w", Slots(lambda: 4, 1), "id", 10.0)
    stopping = trio.Event()
    with trio.fail_after(60):
        await home.run(CodeConfig(daemons=[URL], sandbox=sandbox), stopping)
    assert stopping.is_set()
    assert wrong in home.wrong
    assert [path for path, _ in daemon.asked] == ["/v1/me"], "it registered for nothing"
