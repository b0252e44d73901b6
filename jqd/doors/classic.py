"""HTTP/2, by hypercorn, behind the same limits: one connection's streams, inside of its task.

Only hypercorn's reading and writing of HTTP/2 is used. What listens, accepts, counts, waits and closes is ours, and all
of HTTP/1 is: a connection that speaks that is served by `connection.py`, whichever door was asked for.
"""

import math
from collections import deque
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
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from priority.priority import MissingStreamError

from jqd.doors.answer import problem_answer
from jqd.doors.asgi import Message, Receive, Send, to_asgi
from jqd.doors.asked import Answer, Asked
from jqd.doors.exchange import READ_BYTES, App, Wire
from jqd.doors.fault import leaf, place_of, say, say_fault
from jqd.doors.head import METHODS, Refused, check_target

STREAMS_MAX = 32  # requests at once on one connection; it counts once among the connections
TURN_BYTES = 4_096  # of what was read: full of SETTINGS they hold the loop for some 15 ms, and all of a read for 250
STREAM = "jqd.stream"  # where its number stands in what hypercorn says of a request
GOODBYE_S = 0.1  # for a few bytes, which go out at once to all who read


class Classic:
    """The streams of one connection."""

    def __init__(self, app: App, wire: Wire, log: Any, busy: Callable[..., None]) -> None:
        """`busy`: told when the first request comes and when the last is answered."""
        self._app: Any = app
        self._wire = wire
        self._log = log
        self.busy = busy
        self._writing = trio.Lock()
        self._torn = False  # what is said now is not whole yet
        self._scope = trio.CancelScope()
        self._protocol: _Protocol | None = None

    async def serve(self) -> None:
        """Until it ends. Raises trio.BrokenResourceError; all else that goes wrong is one line of the log."""
        wire = self._wire
        try:
            with self._scope:
                async with TaskGroup() as group:
                    protocol = self._protocol = _Protocol(self, group, wire)
                    await protocol.initiate()
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

        async def core(asked: Asked) -> Answer | None:
            try:
                answer: Answer | None = await self._app(asked)
            except Exception as error:  # noqa: BLE001 - told and logged
                fault = say_fault(self._log, "door.app_failed", error, peer=self._wire.client[0])
                told = f"a mistake of ours; the log tells more under the id {fault}"
                return problem_answer(500, told, fault=fault)
            return answer

        async def bounded(message: Message) -> None:
            with trio.move_on_after(config.send_s + len(message.get("body", b"")) / config.send_rate) as due:
                await send(message)
            if due.cancelled_caught:
                self._scope.cancel()  # the client takes nothing: no stream of it will get on

        async def reading() -> Message:
            message = await receive()
            if message["type"] == "http.request" and message["more_body"]:
                await protocol.read_on(scope[STREAM])
            return message

        try:
            try:
                await to_asgi(core, config, lambda: self._wire.closing)(scope, reading, bounded)
            finally:
                await protocol.read_over(scope.get(STREAM, 0))
        except trio.BrokenResourceError:
            self._scope.cancel()  # the client has gone: no mistake, and no stream of it will get on
        except Exception as error:  # noqa: BLE001 - hypercorn's own; it is this stream's alone
            say(self._log.warning, "door.http2_failed", error=type(leaf(error)).__name__, place=place_of(error))
        finally:
            protocol.running -= 1
            self.busy(busy=protocol.running > 0)
            self.end_if_over()

    def end_if_over(self) -> None:
        """When the door closes, the last answer is the end."""
        protocol = self._protocol
        if protocol is not None and self._wire.closing and not protocol.running and not protocol.stream_buffers:
            self._scope.cancel()


class _Protocol(H2Protocol):
    """Hypercorn's, without WebSockets, pushes and priorities, and without what one stream can do to the others."""

    def __init__(self, owner: Classic, group: TaskGroup, wire: Wire) -> None:
        config = Config()
        config.include_server_header = False
        config.accesslog = config.errorlog = None
        config.keep_alive_max_requests = 1 << 62
        # With less room hypercorn waits, in the one loop that reads all streams, for an application that has ended.
        # What bounds it is HTTP/2's own window: only what was read is acknowledged, see `read_on`.
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
        self._unread: dict[int, deque[int]] = {}
        """The bytes of each piece of a body that came and was not read."""
        self._owner = owner
        self._wire = wire

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
            case h2.events.DataReceived() if self._is_answered(event.stream_id):
                self._read_over(event)  # its client does not take the answer yet: nobody reads what would be kept
                return False
            case h2.events.PriorityUpdated():
                return False
        return True

    async def _create_stream(self, request: h2.events.RequestReceived) -> None:
        await super()._create_stream(request)
        if (stream := self.streams.get(request.stream_id)) is not None:  # it may be answered already
            told: Any = stream.scope
            told[STREAM] = request.stream_id

    async def _keep(self, event: h2.events.DataReceived) -> None:
        self._unread.setdefault(event.stream_id, deque()).append(event.flow_controlled_length)
        await self.streams[event.stream_id].handle(Body(event.stream_id, event.data))

    async def read_on(self, stream_id: int) -> None:
        """A piece of a body was read: the client may send as much again. Raises trio.BrokenResourceError."""
        self.connection.acknowledge_received_data(self._unread[stream_id].popleft(), stream_id)
        await self._flush()

    async def read_over(self, stream_id: int) -> None:
        """Nobody reads what is left of it, and the other streams need the room. Raises trio.BrokenResourceError."""
        left = sum(self._unread.pop(stream_id, ()))
        if left and not self.closed:
            self.connection.acknowledge_received_data(left, stream_id)
            await self._flush()

    def _is_answered(self, stream_id: int) -> bool:
        """Whether an answer has begun, so that nothing more is read."""
        stream = self.streams[stream_id]
        return isinstance(stream, HTTPStream) and stream.state is not ASGIHTTPState.REQUEST

    def _read_over(self, event: h2.events.DataReceived) -> None:
        self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)

    def _begins(self, event: h2.events.RequestReceived) -> bool:
        """Whether a request is one that we take."""
        fields = dict(event.headers)
        if self.running >= STREAMS_MAX or self._wire.closing:
            self._reset(event.stream_id, ErrorCodes.REFUSED_STREAM)
            return False
        try:
            if fields.get(b":method") not in METHODS:
                raise Refused(400, "the method is none that is served")
            check_target(bytes(fields.get(b":path", b"")))
        except Refused:
            # What came behind it is read already: it may be reset, or the connection over.
            with suppress(h2.exceptions.ProtocolError):
                self.connection.send_headers(event.stream_id, [(b":status", b"400")], end_stream=True)
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
