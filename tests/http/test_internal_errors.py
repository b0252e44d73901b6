"""Nothing that connects ends a server: any exception at any step of a connection, any error at any system call."""

import errno
import itertools
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.lowlevel

import jqd.http.listener as listener_module
import jqd.http.transport as pipe_module
from jqd.http import ListenerConfig, from_asgi, listen, serve_http
from jqd.http.connection_limit import FEW
from jqd.http.listener import Listener
from jqd.http.transport import SocketTransport
from tests.http.transports import PATIENCE_S, Log, MemoryPipe, echo, talking

SECRET = "bytes-of-a-request"
STEPS_MAX = 200  # a script that has more is not what it seems
CONFIG = ListenerConfig()

EXCEPTIONS: list[Callable[[], BaseException]] = [
    partial(ValueError, SECRET),
    partial(OSError, errno.EMFILE, SECRET),
    partial(MemoryError, SECRET),
    partial(RecursionError, SECRET),
    partial(AssertionError, SECRET),
    partial(trio.BrokenResourceError, SECRET),
    partial(trio.ClosedResourceError, SECRET),
    partial(trio.BusyResourceError, SECRET),
    partial(ExceptionGroup, SECRET, [ValueError(SECRET), OSError(SECRET)]),
    partial(UnicodeDecodeError, "utf-8", b"\xff", 0, 1, SECRET),
]

SCRIPT = (
    b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
    b"hello" + b"GET /b HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
    b"0\r\n\r\nGET /d HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
)


class Steps:
    """Counts the steps of a script, and fails at one of them."""

    def __init__(self, at: int, error: Callable[[], BaseException]) -> None:
        self.taken = 0
        self._at = at
        self._error = error

    def take(self, what: str) -> None:
        self.taken += 1
        if self.taken == self._at:
            raise self._error()

    @property
    def failed(self) -> bool:
        return self.taken >= self._at


def stepping(steps: Steps) -> Any:
    """An application each await of which is a step."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def receiving() -> Any:
            steps.take("receive")
            return await receive()

        async def sending(message: Any) -> None:
            steps.take("send")
            await send(message)

        await echo(scope, receiving, sending)

    return app


@pytest.mark.parametrize("error", EXCEPTIONS, ids=lambda error: error.func.__name__)
@pytest.mark.parametrize("log_fails", [False, True])
async def test_an_exception_at_any_step_of_a_connection_stays_there(
    autojump_clock: None, error: Callable[[], BaseException], log_fails: bool
) -> None:
    for at in range(1, STEPS_MAX):
        steps, pipe = Steps(at, error), MemoryPipe()
        pipe.before = steps.take
        async with talking(stepping(steps), pipe=pipe) as talk:
            talk.log.fails = log_fails
            for piece in SCRIPT:
                pipe.feed(piece)
                await trio.sleep(1)
            pipe.feed_eof()
            await talk.wait_over()
            assert talk.pipe.closed
            assert not talk.house.limit.present
            assert SECRET not in str(talk.log.lines) + str(pipe.sent)
            assert len([line for line in talk.log.lines if line["event"] != "http.broken"]) <= 2
        if not steps.failed:
            assert pipe.sent.count(b" 200 OK") == 4
            assert at > 20, "the script has steps"
            return
    raise AssertionError("it never came to its end")


# ---------------------------------------------------------------- system calls


ERRNOS = [
    errno.EMFILE,
    errno.ENOBUFS,
    errno.ENOMEM,
    errno.ECONNRESET,
    errno.EPIPE,
    errno.ENOTCONN,
    errno.EBADF,
    errno.EIO,
]


class FaultySocket:
    """A socket each call of which is a step."""

    def __init__(self, sock: socket.socket, steps: Steps) -> None:
        self._sock = sock
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._sock, name)
        if name == "fileno":
            return call

        def counted(*args: Any) -> Any:
            if name == "close":
                call()
            self._steps.take(name)
            return call(*args) if name != "close" else None

        return counted


@contextmanager
def faulty_waits(module: Any, steps: Steps) -> Iterator[None]:
    """trio's own system calls are steps, too, where `module` waits for a socket."""
    lowlevel = trio.lowlevel

    def step(name: str) -> Any:
        async def wait(sock: Any) -> None:
            steps.take(name)
            await getattr(lowlevel, name)(sock.fileno())

        return wait

    real = module.trio
    names = SimpleNamespace(
        **{name: step(name) for name in ("wait_readable", "wait_writable")},
        notify_closing=lambda sock: lowlevel.notify_closing(sock.fileno()),
        checkpoint=lowlevel.checkpoint,
    )
    module.trio = SimpleNamespace(**{**vars(trio), "lowlevel": names})
    try:
        yield
    finally:
        module.trio = real


@pytest.mark.parametrize("number", ERRNOS, ids=errno.errorcode.get)
async def test_an_error_of_any_system_call_of_a_connection_stays_there(number: int) -> None:
    for at in range(1, STEPS_MAX):
        steps = Steps(at, partial(OSError, number, "as the system says"))
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            faulty: Any = FaultySocket(ours, steps)
            with faulty_waits(pipe_module, steps):
                async with talking(echo, pipe=SocketTransport(faulty)) as talk:  # type: ignore[arg-type]
                    peer = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
                    async with peer:
                        with trio.fail_after(PATIENCE_S):
                            try:
                                await peer.send_all(b"".join(SCRIPT))
                                while await peer.receive_some():
                                    continue
                            except trio.BrokenResourceError:
                                assert steps.failed
                    with trio.fail_after(PATIENCE_S):
                        await talk.over.wait()
                    assert not talk.house.limit.present
            assert ours.fileno() == -1, "its descriptor is given back"
        if not steps.failed:
            assert at > 5
            return
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize("number", [*ERRNOS, errno.ENFILE, errno.ECONNABORTED, errno.EPERM], ids=errno.errorcode.get)
async def test_an_error_of_any_system_call_of_the_listener_ends_nothing(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "PAUSE_S", 0.0)
    for at in itertools.count(1):
        steps, log = Steps(at, partial(OSError, number, "as the system says")), Log()
        with listen("127.0.0.1", 0) as listener:
            faulty: Any = FaultySocket(listener, steps)
            port = listener.getsockname()[1]
            door = Listener(from_asgi(echo), listener, CONFIG, log)
            door._listener = faulty
            with faulty_waits(listener_module, steps):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(door.accept, nursery)
                    for _ in range(2):
                        await _asked(port)
                    nursery.cancel_scope.cancel()
        assert len(log.lines) == (1 if steps.failed and number != errno.ECONNABORTED else 0) or "wait" in str(log.lines)
        if not steps.failed:
            break
    assert at > 4


async def test_what_cannot_be_begun_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory for a connection's task, say."""
    real, refusals = Listener._run, [MemoryError(SECRET), OSError(errno.EMFILE, SECRET)]

    def run(self: Listener, connection: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return real(self, connection)

    monkeypatch.setattr(Listener, "_run", run)
    log = Log()
    async with serving(ListenerConfig(), log) as port:
        for _ in range(2):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                with trio.fail_after(PATIENCE_S):
                    assert await _read(stream) == b""
        await _asked(port)
    assert [line["error"] for line in log.lines] == ["OSError", "MemoryError"]


# ---------------------------------------------------------------- too many


async def test_silent_connections_give_way() -> None:
    """1,100 of them used to take the last descriptor."""
    log = Log()
    async with serving(ListenerConfig(connections_max=8), log) as port:
        silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(40)]
        for _ in range(3):
            await _asked(port)
        for stream in silent[:30]:
            with trio.fail_after(PATIENCE_S):
                assert await _read(stream) == b"", "it had to go"
        for stream in silent:
            await stream.aclose()
    assert log.lines == []


async def test_when_nobody_is_idle_the_newcomer_is_told_so() -> None:
    going, both, log = trio.Event(), trio.Event(), Log()
    inside: list[str] = []

    async def busy(scope: Any, receive: Any, send: Any) -> None:
        inside.append(scope["path"])
        if len(inside) == 2:
            both.set()
        await going.wait()
        await echo(scope, receive, send)

    async with serving(ListenerConfig(connections_max=2, address_connections_max=2), log, busy) as port:
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(_asked, port)
            await both.wait()
            answer = await _ask(port)
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1\r\n" in answer
            assert b"application/problem+json" in answer
            going.set()
        await _asked(port)
    assert [line["event"] for line in log.lines] == ["http.full"]


async def test_two_addresses_that_are_busy_on_all_of_theirs_keep_no_third_one_out() -> None:
    counts = {"127.0.0.2": 24, "127.0.0.3": FEW}
    going, log, inside = trio.Event(), Log(), Counter[str]()
    all_in = {address: trio.Event() for address in counts}

    async def busy(scope: Any, receive: Any, send: Any) -> None:
        address = scope["client"][0]
        inside[address] += 1
        if address in counts:
            if inside[address] == counts[address]:
                all_in[address].set()
            await going.wait()
        await echo(scope, receive, send)

    async with serving(ListenerConfig(connections_max=32), log, busy) as port, trio.open_nursery() as nursery:
        for address, count in counts.items():
            for _ in range(count):
                nursery.start_soon(_ask, port, address)
            with trio.fail_after(PATIENCE_S):
                await all_in[address].wait()
        assert (await _ask(port, "127.0.0.3")).startswith(b"HTTP/1.1 503 ")
        assert (await _ask(port, "127.0.0.4")).startswith(b"HTTP/1.1 200 ")
        going.set()
    assert inside == counts | {"127.0.0.4": 1}


# ---------------------------------------------------------------- over a socket


class serving:
    """A door on a free port; it is closed when the block is left."""

    def __init__(self, config: ListenerConfig, log: Log, app: Any = echo) -> None:
        self._listener = listen("127.0.0.1", 0)
        self._stopped = trio.Event()
        self._serve = partial(
            serve_http, from_asgi(app), self._listener, stopped=self._stopped.wait, config=config, log=log
        )
        self._manager = trio.open_nursery()

    async def __aenter__(self) -> int:
        port: int = self._listener.getsockname()[1]
        nursery = await self._manager.__aenter__()
        await nursery.start(self._serve)
        return port

    async def __aexit__(self, *args: Any) -> Any:
        self._stopped.set()
        return await self._manager.__aexit__(*args)


async def _read(stream: trio.SocketStream) -> bytes:
    """All that comes."""
    data = b""
    try:
        while piece := await stream.receive_some():
            data += piece
    except trio.BrokenResourceError:
        return data
    return data


async def _ask(port: int, address: str | None = None) -> bytes:
    """`address`: from which of this machine's."""
    async with await trio.open_tcp_stream("127.0.0.1", port, local_address=address) as stream:
        with trio.fail_after(PATIENCE_S):
            await stream.send_all(b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            return await _read(stream)


async def _asked(port: int) -> None:
    answer = await _ask(port)
    assert answer.endswith(b"\r\n\r\n/a "), answer
