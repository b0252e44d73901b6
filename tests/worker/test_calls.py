"""What one small job costs a worker, counted in calls of jqd's own functions: times differ by machine, these do not."""

import math
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import jqd
from jqd import App
from jqd.worker import threads
from jqd.worker.service import Service
from tests.worker.exchange import Exchange, packed

ROOM = str(Path(jqd.__file__).parent)
CALLS_MAX = (
    26  # of a job with one parameter, from its batch to its outcome; 24, and more where a loaded machine lets some wait
)
FEW, MANY = 100, 300  # jobs of two batches: what they cost alike is the batch's


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Function → how often it was called, in this thread and in those that start now."""
    found = Counter[str]()

    def count(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOM):
            found[f"{code.co_filename.removeprefix(ROOM)}:{code.co_qualname}"] += 1

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def calls(size: int) -> Counter[str]:
    """For a batch of so many jobs."""
    app = App()

    @app.job
    def answer(number: int) -> int:
        return number

    service = Service(app.jobs)
    body = packed(*({"job_id": str(n), "name": "answer", "argument": {"number": n}} for n in range(size)))
    try:
        with counting() as found:
            exchange = await Exchange(service, body).run()
    finally:
        service.close()
    assert len(exchange.body) == size
    return found


async def test_a_plain_function_goes_through_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "NOTE_S", math.inf)  # on a loaded machine some jobs wait, and their begin is noted
    few, many = await calls(FEW), await calls(MANY)
    each = Counter({name: (many[name] - few[name]) / (MANY - FEW) for name in many})
    told = "\n".join(f"{count:6.2f} {name}" for name, count in each.most_common(40))
    assert sum(each.values()) <= CALLS_MAX, told
