"""Contexts in real python3, node and sh."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import trio

from jqd.client.environ import PASSED
from jqd.code.config import Limits
from jqd.code.context import BEGIN, CODE, Broken
from jqd.code.launch import NotStarted
from tests.code.conftest import handler, job, value

FACTS = "return [argument, payload, job.job_id, job.attempt]"
PID = "import os; return os.getpid()"


@pytest.mark.parametrize("lang", ["python", "node"])
async def test_a_job_is_an_argument_a_line_and_facts(bench: Any, lang: str) -> None:
    async with bench() as at:
        assert value(await at.one(handler(lang, FACTS), "text")) == ["text", "text", "j", 1]
        told = value(await at.one(handler(lang, FACTS), [1, None]))
        assert (told[0], told[1].replace(" ", "")) == ([1, None], "[1,null]")


@pytest.mark.parametrize(
    ("lang", "body", "status", "message"),
    [
        ("python", "raise Failed('bad data')", 400, "bad data"),
        ("python", "raise Retry('later', after=7)", 100, "later"),
        (
            "python",
            "\nraise ValueError('no')",
            500,
            "line 2, in __jqd_body__\n    raise ValueError('no')\nValueError: no",
        ),
        ("python", "return object()", 500, "is not JSON serializable"),
        ("python", "return float('nan')", 500, "not JSON compliant"),
        ("python", "return 2 ** 70", 500, "its result cannot be kept"),
        ("python", "x = []\nfor _ in range(900): x = [x]\nreturn x", 200, ""),
        ("node", "let x = []; for (let n = 0; n < 3000; n++) x = [x]; return x", 500, "INVALID_RESPONSE"),
        ("python", "raise ValueError('\\udc80')", 500, "ValueError: \\udc80"),
        ("python", "import sys; sys.exit(4)", 500, "exit(4)"),
        ("node", "throw new Failed('bad data')", 400, "bad data"),
        ("node", "throw new Retry('later', 7)", 100, "later"),
        ("node", "await 1; null.x", 500, "Cannot read properties of null"),
        ("node", "process.exit(3)", 500, "it exited with 3"),
        ("sh", "exit 7", 500, "it exited with 7"),
        ("sh", "eval if", 500, "it exited with 2"),
        ("node", "JSON.parse('{')", 500, "SyntaxError"),
        ("sh", "echo 100 later", 100, "later"),
    ],
)
async def test_how_an_attempt_may_end(bench: Any, lang: str, body: str, status: int, message: str) -> None:
    async with bench() as at:
        told = await at.one(handler(lang, body))
        assert (told.status, message in told.message) == (status, True), told
        assert told.retry_after == (7 if "7)" in body else None)


@pytest.mark.parametrize("lang", ["python", "node"])
async def test_print_forges_no_outcome(bench: Any, lang: str) -> None:
    forged = '{"status": 200, "result": "forged"}'
    say = f"print('{forged}')" if lang == "python" else f"console.log('{forged}')"
    async with bench() as at:
        told = await at.one(handler(lang, f"{say}; return 'own'"))
        assert (value(told), told.log) == ("own", forged)


@pytest.mark.parametrize(
    ("lang", "body"), [("python", "raise Retry('w', after=-3)"), ("node", "throw new Retry('w', -3)")]
)
async def test_a_time_that_is_over_is_no_wait(bench: Any, lang: str, body: str) -> None:
    """A negative one would be refused, and its job fail for good."""
    async with bench() as at:
        told = await at.one(handler(lang, body))
        assert (told.status, told.retry_after) == (100, 0.0)


@pytest.mark.parametrize("body", ["sys.stdout.close()", "sys.stdout = None", "sys.stderr.close()"])
async def test_code_that_closes_its_output_has_done_its_job(bench: Any, body: str) -> None:
    async with bench() as at:
        assert value(await at.one(handler("python", f"import sys; {body}; return 'done'"))) == "done"


@pytest.mark.parametrize(("end", "code"), [("sys.exit(3)", 3), ("raise KeyError", 1), ("return 'forged'", 0)])
async def test_a_child_that_code_forked_says_nothing_for_its_parent(bench: Any, end: str, code: int) -> None:
    """However it ends: its answer would be its job's, and its job's that of the next one, which never ran."""
    body = f"""
import os, sys
child = os.fork()
if child == 0:
    {end}
return [argument, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]
"""
    async with bench() as at:
        told = await at.run(handler("python", body, batch=3), *(job(n, job_id=str(n)) for n in range(3)))
        assert [value(told[str(n)]) for n in range(3)] == [[n, code] for n in range(3)]


async def test_what_code_writes_to_all_descriptors_answers_for_no_other_job(bench: Any) -> None:
    body = """
import os
for number in range(3, 40) if argument == 0 else ():
    try:
        os.write(number, b'{"status":200,"result":"forged"}\\n' * 2)
    except OSError:
        continue
return argument
"""
    async with bench() as at:
        told = await at.run(handler("python", body, batch=3), *(job(n, job_id=str(n)) for n in range(3)))
        assert "not its own" in told["0"].message
        assert [value(told[str(n)]) for n in (1, 2)] == [1, 2]


async def test_before_once_a_context_each_a_batch(bench: Any) -> None:
    parts: dict[str, Any] = {
        "before": "said = ['before']",
        "before_each": "said.append('each')",
        "after_each": "said.append('after')",
    }
    definition = handler("python", "said.append(argument); return said", batch=2, **parts)
    async with bench() as at:
        two = await at.run(definition, job(1, job_id="a"), job(2, job_id="b"))
        assert value(two["b"]) == ["before", "each", 1, 2]
        assert value(await at.one(definition, 3)) == ["before", "each", 1, 2, "after", "each", 3]


async def test_after_each_also_after_an_error(bench: Any) -> None:
    note, bad, look = (
        f"require('fs').appendFileSync('x', {what})" for what in ("'after'", "argument); null.x; (1", "'')")
    )
    for lang, body, after, look in (
        ("python", "open('x', 'a').write(argument); 1 / 0", "open('x', 'a').write('after')", "return open('x').read()"),
        ("node", bad, note, "return require('fs').readFileSync('x', 'utf8')"),
    ):
        async with bench() as at:
            assert (await at.one(handler(lang, body, eid="e", after_each=after), "body ")).status == 500
            assert value(await at.one(handler(lang, look, eid="e", name="other"))) == "body after"


async def test_sh_has_its_parts_in_one_process_too(bench: Any) -> None:
    parts: dict[str, Any] = {
        "before": "set -eu; a=1",
        "before_each": "b=$((a + 1)); echo 200 noise",
        "after_each": "echo $c >&2",
    }
    async with bench() as at:
        told = await at.one(handler("sh", "c=end; read -r line; echo $line $a $b; exit 3", **parts), "x")
        assert (told.status, told.message.split("\n")[0]) == (500, "x 1 2")
        assert "end" in told.log.split("\n"), "afterEach also after an error"


async def test_who_shares_a_context(bench: Any) -> None:
    async with bench() as at:

        async def pid_of(**fields: Any) -> int:
            return int(value(await at.one(handler("python", PID, **fields))))

        first = await pid_of()
        assert await pid_of() == first
        shared = await pid_of(eid="e")
        assert await pid_of(eid="e", name="other", version=7) == shared
        others: list[dict[str, Any]] = [
            {"version": 2},
            {"eid": "e", "before": "x = 1"},
            {"eid": "e", "tenant": "acme"},
            {"eid": "f"},
        ]
        pids = [first, shared, *[await pid_of(**fields) for fields in others]]
        assert len(set(pids)) == len(pids), "other code, another tenant: another process"


async def test_a_batch_goes_on_in_another_context(bench: Any) -> None:
    body = (
        "import os, time\nif argument == 'hang': time.sleep(60)\nif argument == 'die': os._exit(9)\nreturn os.getpid()"
    )
    jobs = [job(what, job_id=what, timeout=0.5 if what == "hang" else 20) for what in ("a", "hang", "b", "die", "c")]
    async with bench() as at:
        told = await at.run(handler("python", body, batch=5), *jobs)
        assert [told[what].status for what in ("a", "hang", "b", "die", "c")] == [200, 504, 200, 500, 200]
        assert told["hang"].reason == "timeout"
        assert "it exited with 9" in told["die"].message
        assert len({value(told[what]) for what in "abc"}) == 3


async def test_a_batch_of_sh_is_blamed_on_the_first_without_a_line(bench: Any) -> None:
    body = 'while read -r line; do if [ $line = hang ]; then sleep 60; fi; echo "200 $line"; done'
    jobs = [job(what, job_id=what, timeout=0.3) for what in ("a", "hang", "b")]
    async with bench() as at:
        told = await at.run(handler("sh", body, batch=3), *jobs)
        assert [told[what].status for what in ("a", "hang", "b")] == [200, 504, 200]
        few = await at.run(handler("sh", "echo 200", batch=2), job(job_id="a"), job(job_id="b"))
        assert [few[what].status for what in "ab"] == [200, 500]
        assert few["b"].message.startswith("NO_RESPONSE")


@pytest.mark.parametrize("lang", ["python", "sh"])
async def test_a_cancelled_job_is_killed_and_no_other_pays(bench: Any, lang: str, tmp_path_factory: Any) -> None:
    book = tmp_path_factory.mktemp("book") / "begun"
    body = {
        "python": f"import time\nif argument == 'long': open('{book}', 'w'); time.sleep(60)\nreturn 1",
        "sh": f'while read -r line; do if [ $line = long ]; then touch {book}; sleep 60; fi; echo "200 1"; done',
    }[lang]
    async with bench() as at, trio.open_nursery() as nursery:

        async def cancel() -> None:
            while not book.exists():
                await trio.sleep(0.01)
            at.unwanted["long"] = False
            at.batch.stop("long")

        nursery.start_soon(cancel)
        told = await at.run(handler(lang, body, batch=2), job("long", job_id="long"), job("x", job_id="x"))
        assert [told[what].status for what in ("long", "x")] == [499, 200]


async def test_a_job_whose_lease_is_lost_is_not_spoken_of(bench: Any) -> None:
    async with bench() as at:
        at.unwanted["a"] = True
        assert list(await at.run(handler("python", "return 1"), job(job_id="a"), job(job_id="b"))) == ["b"]


@pytest.mark.parametrize("lang", ["python", "node", "sh"])
async def test_a_before_that_fails_breaks_the_handler(bench: Any, lang: str) -> None:
    before = {"python": "import nothing_like_it", "node": "nothing()", "sh": "echo hi; nothing_like_it"}[lang]
    async with bench() as at:
        with pytest.raises(Broken, match="nothing"):
            await at.one(handler(lang, "return 1", before=before))
        assert len(at.batch.left) == 1, "its job was not begun"


@pytest.mark.parametrize(
    ("lang", "fine", "bad"),
    [
        ("python", "open({!r}, 'w').close()", "return ("),
        ("node", "require('fs').writeFileSync({!r}, '')", "return {"),
        ("sh", "touch {!r}", "touch here; if"),
    ],
)
@pytest.mark.parametrize("part", ["body", "before_each", "after_each"])
async def test_code_that_does_not_compile_breaks_its_handler_alone(
    bench: Any, lang: str, fine: str, bad: str, part: str, tmp_path_factory: Any
) -> None:
    """Nothing of it runs, no job loses an attempt, and those that share its process go on."""
    ran = tmp_path_factory.mktemp("ran") / "ran"
    texts = {"body": fine.format(str(ran)), "before_each": fine.format(str(ran)), part: bad}
    async with bench() as at:
        for _ in range(2):
            with pytest.raises(Broken) as told:
                await at.one(handler(lang, **texts, eid="e", batch=2))
            assert (told.value.of, len(at.batch.left)) == (CODE, 1)
            assert "yntax" in str(told.value) or "never closed" in str(told.value) or "nexpected" in str(told.value)
        assert not ran.exists()
        assert (await at.one(handler(lang, fine.format(str(ran)), eid="e", name="other"))).status == 200
        assert ran.exists()


async def test_a_context_that_died_while_it_waited_costs_nobody_an_attempt(bench: Any) -> None:
    """Its process is not even known to be dead when the next batch is given to it."""
    definition = handler("python", PID, batch=2)
    async with bench() as at:
        first = value(await at.one(definition))
        os.kill(first, signal.SIGKILL)  # no checkpoint lies between that and the batch
        assert value(await at.one(definition)) != first


@pytest.mark.parametrize("lang", ["python", "sh"])
async def test_what_somebody_else_has_killed_and_reaped_is_no_success(
    bench: Any, lang: str, tmp_path_factory: Any
) -> None:
    """As its worker does itself, when its supervisor has died."""
    book = tmp_path_factory.mktemp("book") / "pid"
    body = {
        "python": f"import os, time\nopen('{book}', 'w').close(); time.sleep(60)",
        "sh": f"touch {book}; sleep 60",
    }[lang]
    async with bench() as at, trio.open_nursery() as nursery:

        async def kill() -> None:
            while not book.exists():
                await trio.sleep(0.01)
            (process,) = at.pool._living
            os.kill(process.pid, signal.SIGKILL)
            os.waitpid(process.pid, 0)  # noqa: ASYNC222 - it was killed

        nursery.start_soon(kill)
        told = await at.one(handler(lang, body))
        assert (told.status, "SIGKILL" in told.message) == (500, True)


async def test_a_process_that_always_ends_before_a_job_begins_breaks_its_handler(bench: Any) -> None:
    async with bench() as at:
        with pytest.raises(Broken, match="it exited with 9") as told:
            await at.one(handler("python", "return 1", before_each="import os; os._exit(9)"))
        assert (told.value.of, len(at.batch.left)) == (BEGIN, 1)


async def test_a_program_that_is_not_there_is_no_jobs_fault(bench: Any) -> None:
    async with bench(python="/nothing/python") as at:
        with pytest.raises(NotStarted, match="/nothing/python"):
            await at.one(handler("python", "return 1"))


async def test_contexts_retire(bench: Any) -> None:
    definition = handler("python", PID)
    async with bench(batches_max=2, idle_s=0.2, concurrency=1) as at:
        pids = [value(await at.one(definition)) for _ in range(3)]
        assert pids[0] == pids[1] != pids[2]
        assert at.pool.warm == {definition.key}
        await trio.sleep(0.3)
        at.pool.look()
        assert at.pool.warm == frozenset(), "idle for too long"


async def test_few_idle_contexts_are_kept_and_no_large_ones(bench: Any) -> None:
    async with bench(concurrency=1) as at:
        for name in "abc":
            await at.one(handler("python", "return 1", name=name))
        assert {key.engine for key in at.pool.warm} == {"b@1", "c@1"}, "the one that was used first went"
        large = handler("python", "global kept; kept = bytearray(b'x') * (300 << 20); return 1")
        await at.one(large)
        for _ in range(2):  # one to see it, one to end it
            at.pool.look()
        assert large.key not in at.pool.warm, "it holds more than half of what it may"


async def test_limits_are_those_of_the_process(bench: Any) -> None:
    body = """
import resource as r, os
names = ("RLIMIT_AS", "RLIMIT_NOFILE", "RLIMIT_FSIZE", "RLIMIT_CORE", "RLIMIT_CPU")
(line,) = [line for line in open("/proc/self/status") if line.startswith("NoNewPrivs")]
limits = [r.getrlimit(getattr(r, name))[0] for name in names]
return [limits, line.split()[1], os.getsid(0) == os.getpid(), sorted(os.environ)]
"""
    async with bench(Limits(memory_mib=300, files=99, file_mib=3, cpu_s=77)) as at:
        told = value(await at.one(handler("python", body)))
        assert told[0] == [300 << 20, 99, 3 << 20, 0, 77]
        assert told[1:3] == ["1", True]
        assert set(told[3]) <= {"HOME", "TMPDIR", "JQD_CODE", *PASSED}


async def test_a_home_is_deleted_whatever_was_done_to_it(bench: Any, tmp_path: Path) -> None:
    body = "import os\nos.makedirs('a/b'); open('a/b/c', 'w').close(); os.chmod('a/b', 0); os.symlink('/', 'root')\n"
    async with bench() as at:
        value(await at.one(handler("python", body + "return 1")))
        assert len(list(tmp_path.iterdir())) == 1  # noqa: ASYNC240 - of a few files


async def test_a_pool_that_stops_while_a_context_starts_breaks_no_handler(bench: Any) -> None:
    async with bench() as at, trio.open_nursery() as nursery:

        async def stop() -> None:
            while not at.pool._living:
                await trio.sleep(0.01)
            at.pool.stop()

        nursery.start_soon(stop)
        assert await at.run(handler("python", "return 1", before="import time; time.sleep(60)")) == {}
        assert [one.job_id for one in at.batch.left] == ["j"], "it goes back"


async def test_a_large_result_of_small_values_holds_up_nothing_else(bench: Any, unstalled: None) -> None:
    async with bench(Limits(memory_mib=2_000)) as at:
        result = (await at.one(handler("python", "return [[] for _ in range(argument)]"), 1_000_000)).result
        assert bytes(result) == b"\xdd" + (1_000_000).to_bytes(4, "big") + b"\x90" * 1_000_000


async def test_where_no_thread_can_be_started_the_worker_goes_on(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def starts_none(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(trio.to_thread, "run_sync", starts_none)
    async with bench() as at:
        assert value(await at.one(handler("sh", "read -r line; echo 200 $line"), "x")) == "x"
