"""Settings that change while we run: health red, new jobs kept in the journal, and all is well again by itself."""

import errno
import threading

import pytest
import trio
from structlog.testing import capture_logs
from trio.to_thread import run_sync as run_in_a_thread

from jqd.domain.diagnostic import Diagnostic, Severity
from jqd.domain.errors import StoreAway, StoreUnsafe
from jqd.loops.watch import LOOK_S, Apply, Watch, watch_disk, watch_nothing
from jqd.serve import _look_at_all
from jqd.store import MISPLACED, StoreConfig

BAD = Diagnostic("evicting", Severity.REFUSE, "maxmemory-policy is allkeys-lru", "it deletes jobs", "CONFIG SET …")
FULL = Diagnostic("nearly_full", Severity.WARN, "90 of 100 bytes", "it takes no more soon", "give it more")
ODD = Diagnostic("version", Severity.WARN, "the server is old", "holes", "update it")


class Server:
    """Answers the doctor's questions, or not."""

    def __init__(self) -> None:
        self.findings: list[Diagnostic] = []
        self.away = False
        self.looks = 0

    async def examine(self) -> list[Diagnostic]:
        self.looks += 1
        await trio.lowlevel.checkpoint()
        if self.away:
            raise StoreAway("nobody there")
        return self.findings


class Store:
    """Takes note of what is applied."""

    def __init__(self) -> None:
        self.applied: list[tuple[object, ...]] = []

    async def apply(self, journal_id: str, start: int, end: int, records: object, /) -> None:
        self.applied.append((journal_id, start, end, records))


@pytest.fixture
def server() -> Server:
    return Server()


async def test_jobs_go_into_a_good_store_only(server: Server) -> None:
    watch, store = Watch(server.examine, accept_loss=False), Store()
    apply: Apply = watch.guard(store.apply)
    await apply("j", 0, 1, ["job"])
    await apply("j", 1, 2, ["job"])
    assert server.looks == 1, "it was looked at before anything was brought there, and not for every call"
    server.findings = [ODD, BAD]
    await watch.look()
    for _ in range(2):
        with pytest.raises(StoreUnsafe, match=r"allkeys-lru: it deletes jobs\. To mend it: CONFIG SET"):
            await apply("j", 2, 3, ["job"])
    server.findings = [ODD]
    await watch.look()
    assert watch.reason is None
    await apply("j", 2, 3, ["job"])
    assert [row[1] for row in store.applied] == [0, 1, 2]


async def test_a_store_that_was_away_is_looked_at_before_it_gets_jobs(server: Server) -> None:
    watch, store = Watch(server.examine, accept_loss=False), Store()
    apply: Apply = watch.guard(store.apply)
    await apply("j", 0, 1, [])
    server.away = True
    with pytest.raises(StoreAway):
        await watch.look()
    with pytest.raises(StoreAway):
        await apply("j", 1, 2, [])
    server.away, server.findings = False, [BAD]
    with pytest.raises(StoreUnsafe):
        await apply("j", 1, 2, [])
    assert len(store.applied) == 1


async def test_a_daemon_does_not_start_on_a_store_that_loses_jobs(server: Server) -> None:
    server.findings = [ODD]
    await Watch(server.examine, accept_loss=False).start()
    server.findings = [ODD, BAD]
    with pytest.raises(StoreUnsafe, match=r"(?s)allkeys-lru.*--i-accept-loss") as refused:
        await Watch(server.examine, accept_loss=False).start()
    assert ODD.what not in str(refused.value)


async def test_what_no_acceptance_opens_is_not_called_a_loss(server: Server) -> None:
    server.findings = [
        Diagnostic("no_entry", Severity.REFUSE, "the server does not let us in", "it asks: who?", "say who")
    ]
    with pytest.raises(StoreUnsafe) as refused:
        await Watch(server.examine, accept_loss=False).start()
    told = str(refused.value)
    assert told.startswith("the store cannot be used: the server does not let us in: it asks: who? To mend it: say who")
    assert "--i-accept-loss" not in told


async def test_a_store_that_is_away_does_not_keep_a_daemon_from_starting(server: Server) -> None:
    server.away = True
    with capture_logs() as logs:
        await Watch(server.examine, accept_loss=False).start()
    assert [line["event"] for line in logs] == ["watch.store_away"]


async def test_all_partitions_are_looked_at_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that hang cost their time once; of several that refuse the first is told, and not in a group."""
    here, all_here = set[int](), trio.Event()

    def watch_over(part: StoreConfig) -> Watch:
        async def examine() -> list[Diagnostic]:
            here.add(part.partition)
            if len(here) == 3:
                all_here.set()
            await all_here.wait()
            return [BAD] if part.partition else []

        return Watch(examine, accept_loss=False)

    monkeypatch.setattr("jqd.serve.watch_over", watch_over)
    with trio.fail_after(60), pytest.raises(StoreUnsafe, match="allkeys-lru"):
        await _look_at_all(StoreConfig("redis://a", partitions=3).parts())


async def test_what_a_start_found_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon goes on with the watches that looked before it began."""

    async def examine() -> list[Diagnostic]:
        return [ODD]

    monkeypatch.setattr("jqd.serve.watch_over", lambda part: Watch(examine, accept_loss=False))
    with capture_logs() as logs:
        (watch,) = await _look_at_all(StoreConfig("redis://a").parts())
        await watch.look()
    assert [line["event"] for line in logs] == ["watch.finding"]


async def test_loss_that_is_accepted_stops_nothing_and_is_told(server: Server) -> None:
    server.findings = [BAD, ODD]
    watch, store = Watch(server.examine, accept_loss=True), Store()
    with capture_logs() as logs:
        await watch.start()
    assert watch.reason is None
    assert watch.warnings == [f"accepted: {BAD}"]
    server.findings = [ODD, FULL]
    await watch.look()
    assert watch.warnings == [str(FULL)], "how it is, not how it was set up"
    server.findings = [BAD, ODD]
    await watch.look()
    assert [(line["code"], line["log_level"]) for line in logs] == [("evicting", "error"), ("version", "warning")]
    await watch.guard(store.apply)("j", 0, 1, [])
    assert len(store.applied) == 1


@pytest.mark.parametrize("code", ["no_entry", "no_store", "tls", "acl_narrow", *sorted(MISPLACED)])
async def test_only_losses_can_be_accepted(server: Server, code: str) -> None:
    """A daemon that went on with a partition on a wrong server would begin a second store there."""
    server.findings = [BAD, Diagnostic(code, Severity.REFUSE, "it cannot be used", "it is another one", "…")]
    watch = Watch(server.examine, accept_loss=True)
    with pytest.raises(StoreUnsafe, match=r"^the store cannot be used: it cannot be used") as raised:
        await watch.start()
    assert "--i-accept-loss" not in str(raised.value)
    assert watch.warnings == [f"accepted: {BAD}"]
    server.findings = [BAD]
    await watch.start()


async def test_it_is_looked_at_again_and_again(server: Server, autojump_clock: trio.testing.MockClock) -> None:
    watch = Watch(server.examine, accept_loss=False)
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            await nursery.start(watch.run)
            await trio.sleep(LOOK_S / 2)
            seen = [watch.reason]
            server.findings = [BAD]
            await trio.sleep(LOOK_S)
            seen.append(watch.reason)
            server.away = True
            await trio.sleep(LOOK_S)
            seen.append(watch.reason)
            server.away, server.findings = False, []
            await trio.sleep(LOOK_S)
            seen.append(watch.reason)
            nursery.cancel_scope.cancel()
    assert [reason is None for reason in seen] == [True, False, False, True], "what is away is not mended"
    told = [(line["event"], line.get("code")) for line in logs if line["log_level"] != "debug"]
    assert told == [("watch.finding", "evicting"), ("watch.mended", "evicting")]
    assert server.looks == 4


async def test_what_has_no_server_is_always_well() -> None:
    watch, store = watch_nothing(), Store()
    await watch.start()
    await watch.guard(store.apply)("j", 0, 1, [])
    assert watch.reason is None
    assert len(store.applied) == 1


async def test_a_look_that_the_system_does_not_allow_ends_nothing(server: Server, autojump_clock: None) -> None:
    """1,100 silent connections took the last descriptor, and the next look ended the daemon."""
    store = Store()

    async def examine() -> list[Diagnostic]:
        if server.away:
            raise OSError(errno.EMFILE, "Too many open files")
        return await server.examine()

    watch = Watch(examine, accept_loss=False)
    apply: Apply = watch.guard(store.apply)
    server.away = True
    async with trio.open_nursery() as nursery:
        await nursery.start(watch.run)
        await trio.sleep(2.5 * LOOK_S)
        with pytest.raises(StoreAway, match="Too many open files"):
            await apply("j", 0, 1, ["job"])
        server.away = False
        await trio.sleep(LOOK_S)
        assert server.looks
        nursery.cancel_scope.cancel()
    await apply("j", 0, 1, ["job"])
    assert len(store.applied) == 1


async def test_a_disk_that_fills_up_is_told_and_one_that_stands_still_takes_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nearly = Diagnostic("disk_nearly_full", Severity.WARN, "3 MiB left", "pushes are refused", "make room")
    found, stands, began = [nearly], threading.Event(), 0

    def stand() -> list[Diagnostic]:
        nonlocal began
        began += 1
        stands.wait(30)
        return []

    disk = watch_disk(lambda: found)
    await disk.look()
    assert (disk.warnings, disk.reason) == ([str(nearly)], None)
    found.clear()
    await disk.look()
    assert disk.warnings == []

    def deleted() -> list[Diagnostic]:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "/j")

    gone = watch_disk(deleted)
    await gone.look()
    assert "No such file or directory: '/j'" in str(gone.warnings), "an idle daemon was ready until its first commit"
    assert gone.reason is None
    monkeypatch.setattr(trio.to_thread, "run_sync", run_in_a_thread)
    monkeypatch.setattr("jqd.loops.watch.LOOK_S", 0.02)  # by the real clock: a thread stands still by no other
    still = watch_disk(stand)
    try:
        for _ in range(5):
            await still.look()
            assert "the disk has not answered for" in str(still.warnings)
        assert began == 1
    finally:
        stands.set()
