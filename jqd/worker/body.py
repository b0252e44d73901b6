"""The body of a request: read within its limits, and understood as a batch."""

import msgspec
import trio

from jqd.worker.refusal import Receive, Refusal
from jqd.worker.wire import BatchIn, Codec

DIGITS_MAX = 18  # of a Content-Length: more is too much, whatever the limit, and Python reads no thousands of them


async def read_body(headers: dict[bytes, str], receive: Receive, *, bytes_max: int, timeout_s: float) -> bytes | None:
    """The whole body; None when the client hung up while sending it. Raises Refusal."""
    too_large = Refusal(
        413, "Batch too large", f"this worker takes batches of up to {bytes_max} bytes; send fewer jobs"
    )
    told = headers.get(b"content-length", "")
    if told.isdecimal() and (len(told) > DIGITS_MAX or int(told) > bytes_max):
        raise too_large
    chunks, size = [], 0
    with trio.move_on_after(timeout_s):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > bytes_max:
                raise too_large
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)
    raise Refusal(408, "Body too slow", f"the batch was not complete after {timeout_s:g} s; send it again")


def parse_batch(codec: Codec, body: bytes) -> BatchIn:
    """Raises Refusal for what is no batch."""
    try:
        return codec.decode_batch(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        detail = (
            f"the body is no batch of jobs ({error}); it is a map with `jobs`, a list of maps with `job_id` and `name`"
        )
        raise Refusal(400, "Batch not understood", detail) from None
