"""The example worker of `jqd dev` does what its docstrings say."""

from typing import Any

from jqd.worker.demo import FLAKY_FAILURES, app
from tests.worker.exchange import run_batch


def job(job_id: str, name: str, argument: Any, **more: Any) -> dict[str, Any]:
    return {"job_id": job_id, "name": name, "argument": argument, "max_retry": 5} | more


async def test_each_demo_job() -> None:
    exchange = await run_batch(
        app,
        job("echo", "echo", {"a": 1}),
        job("add", "add", [1, 2.5]),
        job("add text", "add", "12"),
        job("sleep", "sleep", 0.001),
        job("sleep too long", "sleep", 3600, timeout=0.01),
        job("fail", "fail", "x"),
        job("flaky first", "flaky", "x", attempt=FLAKY_FAILURES),
        job("flaky last", "flaky", "x", attempt=FLAKY_FAILURES + 1),
    )
    told = exchange.by_id
    assert told["echo"]["result"] == {"a": 1}
    assert told["add"]["result"] == 3.5
    assert (told["add text"]["should_retry"], told["add text"]["message"]) == (
        False,
        "job 'add' takes (numbers: list[int | float], /): Expected `array`, got `str`",
    )
    assert told["sleep"]["result"] == 0.001
    assert told["sleep too long"]["reason"] == "timeout"
    assert (told["fail"]["should_retry"], told["fail"]["error"]) == (True, "RuntimeError: told to fail with 'x'")
    assert told["flaky first"]["error"].startswith("ConnectionError")
    assert told["flaky last"]["result"] == f"'x' took {FLAKY_FAILURES + 1} attempts"
