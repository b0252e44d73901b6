"""HTTP/2, by hypercorn, behind the same limits: one connection's streams, inside of its task.

Only hypercorn's reading and writing of HTTP/2 is used. What listens, accepts, counts, waits and closes is ours, and all
of HTTP/1 is: a connection that speaks that is served by `connection.py`, whichever door was asked for.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import h2.events
import h2.exceptions
import h2.settings
import trio
from h2.errors import ErrorCodes
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, RawData
from hypercorn.protocol.events import Body
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from priority.priority import MissingStreamError

from jqd.doors.answer import problem_answer
from jqd.doors.asgi import Message, Receive, Send, to_asgi
from jqd.doors.asked import Answer, Asked
from jqd.doors.exchange import READ_BYTES, App, Wire
from jqd.doors.fault import leaf, place_of, say, say_fault
from jqd.doors.head import Refused, check_method, check_single, check_target

STREAMS_MAX = 32  # requests at once on one connection; it counts once among the connections
TURN_BYTES = 4_096  # of what was read: full of SETTINGS they hold the loop for some 15 ms, and all of a read for 250
UNREAD_BYTES = 65_535  # of one body: what a client may send before it is read; the protocol begins with so much
WIDE_MAX = 32  # connections of a door that have so much for each of their streams: 64 MiB
GOODBYE_S = 0.1  # for a few bytes, which go out at once to all who read


class Classic:
    """The streams of one connection."""

    def __init__(self, app: App, wire: Wire, log: Any, busy: Callable[..., None], wide: trio.Semaphore) -> None:
        """`busy`: told when the first request comes and when the last is answered; `wide`: WIDE_MAX of the door."""
        self._app: Any = app
        self._wire = wire
        self._log = log
        self.busy = busy
        self._wide = wide
        self._writing = trio.Lock()
        self._torn = False  # what is said now is not whole yet
        self._scope = trio.CancelScope()
        self._protocol: _Protocol | None = None

    async def serve(self) -> None:
        """Until it ends. Raises trio.BrokenResourceError; all else that goes wrong is one line of the log."""
        wire, is_wide = self._wire, False
        try:
            with self._scope:
                async with TaskGroup() as group:
                    protocol = self._protocol = _Protocol(self, group, wire)
                    with suppress(trio.WouldBlock):
                        self._wide.acquire_nowait()
                        is_wide = True
                    await protocol.open(wide=is_wide)
                    data = bytes(wire.buffer) or await wire.pipe.receive_some(READ_BYTES)
                    wire.buffer.clear()
                    while data and not protocol.closed:
                        await self._hear(protocol, data)
                        data = await wire.pipe.receive_some(READ_BYTES)
                    await protocol.handle(Closed())
                    self._scope.cancel()
        except* trio.BrokenResourceError:
            raise
        except* Exception as group_told:  # noqa: BLE001 - whatever it is, it is this connection's alone
            error = type(leaf(group_told)).__name__
            say(self._log.warning, "door.http2_failed", error=error, place=place_of(group_told), peer=wire.client[0])
        finally:
            if is_wide:
                self._wide.release()
            await self._go_away()

    async def _hear(self, protocol: "_Protocol", data: bytes) -> None:
        """Read frames, and let others have their turn between: each costs the more, the smaller it is."""
        for begin in range(0, len(data), TURN_BYTES):
            if protocol.closed:
                return
            if begin:
                await trio.lowlevel.checkpoint()
            await protocol.handle(RawData(data[begin : begin + TURN_BYTES]))

    async def _go_away(self) -> None:
        """Tell a client that is still there what was taken, so that it knows what to ask again."""
        protocol = self._protocol
        if protocol is None or protocol.closed or self._torn:
            return
        protocol.connection.close_connection()
        with trio.move_on_after(GOODBYE_S, shield=True):
            await self._wire.pipe.send_all(protocol.connection.data_to_send())

    async def send(self, event: object) -> None:
        """What hypercorn says of the connection. Whether it is idle we know better: it does not tell after a reset."""
        match event:
            case RawData():
                async with self._writing:
                    self._torn = True
                    await self._wire.write(bytes(event.data))
                    self._torn = False
            case Closed():
                assert self._protocol is not None
                await self._protocol.handle(event)

    async def asgi(self, scope: Message, receive: Receive, send: Send) -> None:
        """One request. Its application's mistakes end one answer, as in HTTP/1."""
        config, protocol = self._wire.config, self._protocol
        assert protocol is not None
        stream_id: int = scope["state"]["stream"]

        async def core(asked: Asked) -> Answer | None:
            try:
                answer: Answer | None = await self._app(asked)
            except Exception as error:  # noqa: BLE001 - told and logged
                fault = say_fault(self._log, "door.app_failed", error, peer=self._wire.client[0])
                told = f"a mistake of ours; the log tells more under the id {fault}"
                return problem_answer(500, told, fault=fault)
            return answer

        async def hear() -> Message:
            message = await receive()
            if message.get("more_body"):
                message["body"] = protocol.take(stream_id)
            return message

        async def bounded(message: Message) -> None:
            protocol.drop(stream_id)
            with trio.move_on_after(config.send_s + len(message.get("body", b"")) / config.send_rate) as due:
                await send(message)
            if due.cancelled_caught:
                self._scope.cancel()  # the client takes nothing: no stream of it will get on

        try:
            await to_asgi(core, config, lambda: self._wire.closing)(scope, hear, bounded)
        except trio.BrokenResourceError:
            self._scope.cancel()  # the client has gone: no mistake, and no stream of it will get on
        except Exception as error:  # noqa: BLE001 - hypercorn's own; it is this stream's alone
            say(self._log.warning, "door.http2_failed", error=type(leaf(error)).__name__, place=place_of(error))
        finally:
            protocol.drop(stream_id)
            protocol.running -= 1
            self.busy(busy=protocol.running > 0)
            self.end_if_over()

    def end_if_over(self) -> None:
        """When the door closes, the last answer is the end."""
        protocol = self._protocol
        if protocol is not None and self._wire.closing and not protocol.running and not protocol.stream_buffers:
            self._scope.cancel()


class _Unread:
    """What has come of a body and was not read yet."""

    __slots__ = ("bytes", "data")

    def __init__(self) -> None:
        self.data = bytearray()
        self.bytes = 0
        """Of its window: with what its frames were filled up with."""


class _Protocol(H2Protocol):
    """Hypercorn's, without WebSockets, pushes and priorities, and without what one stream can do to the others."""

    def __init__(self, owner: Classic, group: TaskGroup, wire: Wire) -> None:
        config = Config()
        config.include_server_header = False
        config.accesslog = config.errorlog = None
        config.keep_alive_max_requests = 1 << 62
        # The queue has three messages at most: that there is something to read, its end, and that the client has left.
        # With less room hypercorn waits, in the one loop that reads all streams, for an application that has ended.
        config.max_app_queue_size = math.inf  # type: ignore[assignment]
        state: Any = ConnectionState({})
        app: Any = ASGIWrapper(owner.asgi)  # type: ignore[arg-type]
        ends = (wire.scheme == "https", wire.client, wire.server)
        super().__init__(app, config, WorkerContext(None), group, state, *ends, owner.send)
        codes = h2.settings.SettingCodes
        limits = {codes.MAX_CONCURRENT_STREAMS: STREAMS_MAX, codes.MAX_HEADER_LIST_SIZE: wire.config.head_bytes_max}
        self.connection.local_settings = h2.settings.Settings(client=False, initial_values=limits)
        self.connection.decoder.max_header_list_size = wire.config.head_bytes_max  # h2 sets it when it changes only
        self.running = 0
        """Requests somebody works for: those of streams that were reset, too."""
        self._owner = owner
        self._wire = wire
        self._unread: dict[int, _Unread] = {}  # of the streams whose answer has not begun
        self._tells = False

    async def open(self, *, wide: bool) -> None:
        """Begin. `wide`: streams that are not read leave the others their room; else all share UNREAD_BYTES."""
        await self.initiate()
        if wide:
            self.connection.increment_flow_control_window((STREAMS_MAX - 1) * UNREAD_BYTES)
            await self._flush()

    async def _create_stream(self, request: h2.events.RequestReceived) -> None:
        self._unread[request.stream_id] = _Unread()
        state: Any = {"stream": request.stream_id}
        self.connection_state = state  # its application is given a copy
        await super()._create_stream(request)

    def take(self, stream_id: int) -> bytes:
        """What has come of a body since the last time; its client may send as much again."""
        unread = self._unread.get(stream_id)
        if unread is None:
            return b""
        data = bytes(unread.data)
        unread.data.clear()
        self._open_window(stream_id, unread)
        return data

    def drop(self, stream_id: int) -> None:
        """Nothing more is read of a body: what comes of it is read over."""
        unread = self._unread.pop(stream_id, None)
        if unread is not None:
            self._open_window(stream_id, unread)

    def _open_window(self, stream_id: int, unread: _Unread) -> None:
        if not unread.bytes:
            return
        self.connection.acknowledge_received_data(unread.bytes, stream_id)
        unread.bytes = 0
        if not self._tells:  # by a task of the connection: who reads may be cancelled, and a frame cut off ends it
            self._tells = True
            self.task_group.spawn(self._tell)

    async def _tell(self) -> None:
        self._tells = False
        await self._flush()

    async def _keep(self, event: h2.events.DataReceived) -> None:
        """Of a body that is to be read. Its pieces become one: a message for each byte is 400 times as much."""
        unread = self._unread[event.stream_id]
        is_first = not unread.data
        unread.data += event.data
        unread.bytes += event.flow_controlled_length
        if is_first:
            await self.streams[event.stream_id].handle(Body(stream_id=event.stream_id, data=b""))

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        for event in events:
            if self._lets_through(event):
                if isinstance(event, h2.events.DataReceived):
                    await self._keep(event)
                else:
                    await super()._handle_events([event])
            if isinstance(event, h2.events.StreamReset):
                await self._forget(event.stream_id)
        await self._flush()

    def _lets_through(self, event: h2.events.Event) -> bool:
        match event:
            case h2.events.RequestReceived():
                return self._begins(event)
            case h2.events.DataReceived() if event.stream_id not in self.streams:
                # It was answered before it was read: what still comes is read over, and the client told to stop, once
                # it has the whole answer: behind a reset it would take none.
                self._read_over(event)
                if event.stream_ended is None and event.stream_id not in self.stream_buffers:
                    self._reset(event.stream_id, ErrorCodes.NO_ERROR)
                return False
            case h2.events.DataReceived() if not event.data or event.stream_id not in self._unread:
                # Nothing, or its client does not take the answer yet: nobody reads what would be kept.
                self._read_over(event)
                return False
            case h2.events.PriorityUpdated():
                return False
        return True

    def _read_over(self, event: h2.events.DataReceived) -> None:
        self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)

    def _begins(self, event: h2.events.RequestReceived) -> bool:
        """Whether a request is one that we take."""
        fields = dict(event.headers)
        if self.running >= STREAMS_MAX or self._wire.closing:
            self._reset(event.stream_id, ErrorCodes.REFUSED_STREAM)
            return False
        try:
            check_method(bytes(fields.get(b":method", b"")))
            check_target(bytes(fields.get(b":path", b"")))
            check_single(event.headers)
        except Refused as refused:
            # What came behind it is read already: it may be reset, or the connection over.
            with suppress(h2.exceptions.ProtocolError):
                self.connection.send_headers(event.stream_id, [(b":status", b"%d" % refused.status)], end_stream=True)
                if event.stream_ended is None:
                    self._reset(event.stream_id, ErrorCodes.NO_ERROR)
            return False
        self.running += 1
        self._owner.busy(busy=True)
        return True

    def _reset(self, stream_id: int, code: ErrorCodes) -> None:
        try:
            self.connection.reset_stream(stream_id, code)
        except h2.exceptions.ProtocolError:  # it is over already
            self._wire.read_due_s = min(self._wire.read_due_s, trio.current_time() + self._wire.config.idle_s)

    async def _send_data(self, stream_id: int) -> None:
        try:
            await super()._send_data(stream_id)
        except KeyError:  # it was reset while it waited for its turn, and hypercorn takes it out twice
            await self._forget(stream_id)
        self._owner.end_if_over()

    async def _forget(self, stream_id: int) -> None:
        """What is to be sent on a stream that was reset."""
        buffer = self.stream_buffers.pop(stream_id, None)
        if buffer is not None:
            await buffer.close()
        with suppress(MissingStreamError):
            self.priority.remove_stream(stream_id)
