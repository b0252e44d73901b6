"""When a code worker ends by itself: when its token can never be of use, and not for one bad answer."""

import httpx2
import msgspec
import pytest
import trio
from trio.testing import MockClock

from jqd.code.config import CodeConfig, Sandbox
from jqd.code.worker import HomeDaemon
from jqd.domain.media import MSGPACK
from jqd.domain.tokens import Role
from jqd.worker.register import Slots
from tests.api.tokened import call, make
from tests.api.tokened import edge as edge  # the fixture
from tests.api.whole import Whole
from tests.code.conftest import URL, FakeDaemon

ME = {"role": "worker", "tenant": "", "scopes": []}
WHILE_S = 200.0


class Ended:
    """What became of a worker with a home at each daemon within WHILE_S."""

    def __init__(self, answers: dict[str, list[int]], sandbox: Sandbox = "none") -> None:
        """`answers`: host of a daemon → statuses of its answers to /v1/me; the last one is of all further."""
        self._answers = {host: [*statuses] for host, statuses in answers.items()}
        self._urls, self._sandbox = [f"http://{host}" for host in answers], sandbox
        self.homes: list[HomeDaemon] = []
        self.after_s: float | None = None
        """After how long it ended; None: it did not."""

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        await trio.lowlevel.checkpoint()
        if request.url.path != "/v1/me":
            return httpx2.Response(503)
        left = self._answers[request.url.host]
        status = left.pop(0) if len(left) > 1 else left[0]
        if status == 0:
            raise httpx2.ConnectError("away")
        return httpx2.Response(status, content=msgspec.msgpack.encode(ME if status == 200 else {"detail": "no"}))

    async def run(self) -> "Ended":
        slots, stopping, began_s = Slots(lambda: 4, 1), trio.Event(), trio.current_time()
        config = CodeConfig(daemons=self._urls, sandbox=self._sandbox)
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer)) as http:
            self.homes = [HomeDaemon(url, http, "w", slots, "id", 10.0) for url in self._urls]
            async with trio.open_nursery() as nursery:
                for home in self.homes:
                    nursery.start_soon(home.run, config, stopping)
                with trio.move_on_after(WHILE_S):
                    await stopping.wait()
                    self.after_s = trio.current_time() - began_s
                nursery.cancel_scope.cancel()
        return self

    @property
    def wrong(self) -> list[str]:
        return [home.wrong for home in self.homes if home.wrong]


class EndedAtApi(Ended):
    """The same with a daemon's own API, which asks for tokens."""

    def __init__(self, edge: Whole, token: str) -> None:
        super().__init__({"a": []})
        self._edge, self._token = edge, token

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        target, headers = request.url.raw_path.decode(), {"authorization": f"Bearer {self._token}"}
        answer = await self._edge.call(request.method, target, request.content or None, accept=MSGPACK, headers=headers)
        return httpx2.Response(answer.status, content=answer.raw, headers=answer.headers)


@pytest.mark.parametrize("role", Role)
async def test_a_worker_ends_by_itself_if_its_token_may_not_make_one_of_its_calls(
    role: Role, edge: Whole, autojump_clock: MockClock
) -> None:
    """Every token may ask who it is: one of the role push counted as accepted, and then got a 403 each second."""
    token = (await make(edge, role))["token"]
    spec = {"name": "w", "worker_id": "id", "max_jobs": 1, "jobs": ["m"], "ttl": 10.0}
    statuses = [
        (await call(edge, token, "GET", "/v1/handlers")).status,
        (await call(edge, token, "POST", "/v1/workers", spec)).status,
    ]
    assert set(statuses) <= {200, 201, 403}
    ended = await EndedAtApi(edge, token).run()
    assert (ended.after_s is not None) == (403 in statuses)
    assert all(f"of the role {role}: a code worker needs a token of the role worker" in why for why in ended.wrong)
    assert len(ended.wrong) == (403 in statuses)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_worker_whose_token_every_daemon_keeps_refusing_ends(status: int, autojump_clock: MockClock) -> None:
    ended = await Ended({"a": [status], "b": [503, 0, status]}).run()
    assert ended.after_s is not None
    assert 2 < ended.after_s < 60, "all daemons know a new token within two seconds"
    (wrong,) = ended.wrong
    assert f"answered {status}" in wrong
    assert "needs a token of the role worker" in wrong


@pytest.mark.parametrize(
    "answers",
    [
        {"a": [200], "b": [401]},
        {"a": [401], "b": [403, 401, 403, 401, 200]},
        {"a": [401], "b": [0]},
        {"a": [401, 401, 401, 401, 200]},
        {"a": [401, 503]},
        {"a": [404] * 10 + [200]},
    ],
)
async def test_a_worker_that_some_daemon_may_take_goes_on(
    answers: dict[str, list[int]], autojump_clock: MockClock
) -> None:
    """404: a proxy may answer so while the daemon behind it restarts."""
    ended = await Ended(answers).run()
    assert (ended.after_s, ended.wrong) == (None, [])
    taken = [home for home, statuses in zip(ended.homes, answers.values(), strict=True) if statuses[-1] == 200]
    assert all(home.catalogue is not None for home in taken)


async def test_a_worker_that_may_not_run_this_code_ends_at_once(daemon: FakeDaemon) -> None:
    daemon.answers["/v1/me"] = lambda query: (200, {"role": "worker", "tenant": "acme", "scopes": []})
    home = HomeDaemon(URL, daemon.http, "w", Slots(lambda: 4, 1), "id", 10.0)
    stopping = trio.Event()
    with trio.fail_after(60):
        await home.run(CodeConfig(daemons=[URL], sandbox="none"), stopping)
    assert stopping.is_set()
    assert "add --sandbox bwrap" in home.wrong
    assert [path for path, _ in daemon.asked] == ["/v1/me"], "it registered for nothing"
