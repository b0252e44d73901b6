"""The registry: what it refuses, forgets and keeps."""

from typing import Any

import msgspec
import pytest

from jqd.domain import fields
from jqd.domain.errors import Invalid, JqdError
from jqd.domain.settings import SettingTable
from jqd.domain.shares import Share
from jqd.runner import WorkerRegistry
from jqd.runner.handler import Handler, HandlerOptions
from jqd.runner.presence import UNREACHABLE_S
from jqd.runner.registry import HANDLER, no_more
from jqd.runner.worker import Worker, WorkerSpec
from jqd.testing.clock import ManualClock


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:80",
        "http://localhost/",
        "https://workers.example.com:8443/a/b%20c/~x",
        "http://[::1]:7/",
        "http://my_worker.svc.cluster.local./run",
        "HTTP://host",
    ],
)
def test_good_urls(url: str) -> None:
    WorkerSpec(name="w", url=url, max_jobs=1)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "does not start with"),
        ("ftp://host/", "does not start with"),
        ("host:80", "does not start with"),
        ("http://", "names no host"),
        ("http:///path", "names no host"),
        ("http://:80/", "names no host"),
        ("http://host:0/", "port 0"),
        ("http://host:99999/", "cannot be read"),
        ("http://host:x/", "cannot be read"),
        ("http://[::1/", "cannot be read"),
        ("http://user:secret@host/", "user name or password"),
        ("http://host/?q", "query or fragment"),
        ("http://host/?", "query or fragment"),
        ("http://host/#f", "query or fragment"),
        ("http://ho st/", "a host that cannot be"),
        ("http://hôst/", "a host that cannot be"),
        ("http://-host/", "a host that cannot be"),
        ("http://a..b/", "a host that cannot be"),
        ("http://" + "a" * 64 + ".b/", "a host that cannot be"),
        ("http://host/a b", "percent-encoded"),
        ("http://host/é", "percent-encoded"),
        ("http://host/\r\nX: y", "percent-encoded"),
        (" http://host/", "percent-encoded"),
        ("http://host/" + "a" * 3000, "more than 2048"),
    ],
)
def test_bad_urls(url: str, why: str) -> None:
    with pytest.raises(Invalid, match="give http") as caught:
        WorkerSpec(name="w", url=url, max_jobs=1)
    assert why in str(caught.value)
    assert caught.value.faults[0].pointer == "/url"
    assert isinstance(caught.value, JqdError)


def read_card(value: dict[Any, Any]) -> WorkerSpec:
    return fields.read(msgspec.msgpack.encode(value), WorkerSpec)


def register(workers: WorkerRegistry, **said: Any) -> Worker:
    """As the API does: what came over the wire, as a card."""
    return workers.register(read_card({"max_jobs": 1, **said}))


WHOLE = "must be a whole number from 1 to {}, not "
PRIORITY = "must be a 32-bit whole number, -2147483648 to 2147483647, not "
TEXT = "must be 1 to 128 printable characters, not "


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("name", "", TEXT + "''"),
        ("name", "a\nb", TEXT + r"'a\nb'"),
        ("name", "x" * 129, TEXT + "'xxx"),
        ("name", 5, TEXT + "5"),
        ("max_jobs", 0, WHOLE.format(100_000) + "0"),
        ("max_jobs", True, WHOLE.format(100_000) + "true"),
        ("max_jobs", 1.5, WHOLE.format(100_000) + "1.5"),
        ("max_jobs", 10**9, WHOLE.format(100_000) + "1000000000"),
        ("batch", 0, WHOLE.format(10_000) + "0"),
        ("jobs", [], "must be a list of 1 to 1000 names, not an array of 0"),
        ("jobs", "mail", "must be a list of 1 to 1000 names, not 'mail'"),
        ("jobs/1", ["mail", ""], TEXT + "''"),
        ("jobs/0", [7], TEXT + "7"),
        ("jobs", ["mail", "a\n"], TEXT + r"'a\n'"),
        ("priority_min", -(2**31) - 1, PRIORITY + "-2147483649"),
        ("priority_max", 2**31, PRIORITY + "2147483648"),
        ("ttl", 0, "must be above 0 and at most 86400 seconds, not 0"),
        ("ttl", -1.0, "must be above 0 and at most 86400 seconds, not -1.0"),
        ("ttl", float("nan"), "must be above 0 and at most 86400 seconds, not nan"),
        ("ttl", 1e9, "must be above 0 and at most 86400 seconds, not 1000000000.0"),
        ("worker_id", "a\x00", TEXT + r"'a\x00'"),
        ("worker_id", b"a", TEXT + "bytes"),
        ("url", 5, "must be a URL, http(s)://host[:port][/path], not 5"),
        ("url", "nowhere", "does not start with http:// or https://"),
        ("maxjobs", 5, "there is no field 'maxjobs'; did you mean 'max_jobs'?"),
        ("protocol", "native", "there is no field 'protocol'"),
    ],
)
def test_a_bad_field_is_named_with_its_value_and_what_is_allowed(field: str, value: Any, why: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_card({"name": "w", "max_jobs": 1, field.partition("/")[0]: value})
    assert caught.value.faults[0].pointer == f"/{field}"
    assert why in str(caught.value)


def test_what_is_no_card_at_all_is_refused() -> None:
    for value in ({}, {5: "w"}):
        with pytest.raises(Invalid, match=r"is required|a map of fields is wanted"):
            read_card(value)


def test_all_workers_together_name_so_many_jobtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jqd.runner.registry.NAMES", Share("jobtypes", 5))
    workers = WorkerRegistry(None, clock=ManualClock())
    first = register(workers, name="a", jobs=["1", "2", "3"])
    register(workers, name="any")
    register(workers, name="b", jobs=["1", "2"])
    with pytest.raises(Invalid, match="there may be 5 jobtypes, and no more") as caught:
        register(workers, name="c", jobs=["1"])
    assert caught.value.faults[0].pointer == "/jobs"
    assert register(workers, name="a", jobs=["7", "8", "9"], worker_id=first.id).jobs == ("7", "8", "9")
    with pytest.raises(Invalid, match="there may be 5"):
        register(workers, name="a", jobs=["6", "7", "8", "9"], worker_id=first.id)
    assert workers.unregister(first.id)
    register(workers, name="c", jobs=["1"])


def test_a_range_of_priorities_the_wrong_way_round() -> None:
    with pytest.raises(Invalid, match="priority_max must be a whole number from 5"):
        read_card({"name": "w", "max_jobs": 1, "priority_min": 5, "priority_max": 4})


def test_a_ttl_must_be_repeated_in_time() -> None:
    clock = ManualClock()
    workers = WorkerRegistry(None, clock=clock)
    worker = register(workers, name="w", ttl=10.0)
    for _ in range(5):
        clock.advance(9.0)
        assert register(workers, name="w", ttl=10.0, worker_id=worker.id, max_jobs=2).id == worker.id
    assert [known.max_jobs for known in workers.list()] == [2]
    clock.advance(10.0)
    assert workers.get(worker.id) is not None
    clock.advance(0.001)
    assert workers.get(worker.id) is None
    assert workers.list() == []
    assert not workers.unregister(worker.id)
    again = register(workers, name="w", ttl=10.0, worker_id=worker.id)
    assert again.id == worker.id, "whoever was forgotten keeps its id"


def test_a_server_that_starts_again_is_the_same_worker() -> None:
    workers = WorkerRegistry(None, clock=ManualClock())
    first = register(workers, name="w", url="http://h/")
    assert register(workers, name="w", url="http://h/", max_jobs=7).id == first.id
    assert [known.max_jobs for known in workers.list()] == [7]
    assert register(workers, name="v", url="http://h/").id != first.id
    assert register(workers, name="w", url="http://h/", style="lightjq").id != first.id
    assert register(workers, name="w").id != register(workers, name="w").id, "those that pull cannot be told apart"


def test_a_long_pause_between_two_tries_does_not_count_as_if_nobody_had_tried() -> None:
    clock = ManualClock()
    workers = WorkerRegistry(None, clock=clock)
    worker = register(workers, name="w", url="http://h/")
    for _ in range(2):
        workers.unreachable(worker.id, UNREACHABLE_S)
        clock.advance(UNREACHABLE_S + 1)
    assert workers.get(worker.id) is None


def test_unreachable_for_long_is_forgotten() -> None:
    clock = ManualClock()
    workers = WorkerRegistry(None, clock=clock)
    worker = register(workers, name="w", url="http://h/")

    def fails_for(seconds: float, every: int = 10) -> None:
        for _ in range(every):
            workers.unreachable(worker.id)
            clock.advance(seconds / every)
        workers.unreachable(worker.id)

    fails_for(UNREACHABLE_S - 1)
    workers.reached(worker.id)
    fails_for(UNREACHABLE_S - 1)
    assert workers.get(worker.id) is not None
    clock.advance(1)
    register(workers, name="w", url="http://h/")
    fails_for(UNREACHABLE_S - 1)
    clock.advance(86_400)
    assert workers.get(worker.id) is not None, "time alone forgets nobody"
    workers.unreachable(worker.id)
    assert workers.get(worker.id) is not None, "nobody tried for a day: it may have been there"
    fails_for(UNREACHABLE_S)
    assert workers.get(worker.id) is None
    workers.unreachable(worker.id)  # late news of one that is gone


def said_again(workers: WorkerRegistry, **named: Any) -> WorkerRegistry:
    """Another daemon's registry, which learned of the same rules."""
    settings = SettingTable()
    other = WorkerRegistry(settings, clock=workers._clock, **named)
    settings.take(reversed([*workers.settings.all("worker")]))
    return other


def test_all_daemons_have_the_same_workers_in_the_same_order() -> None:
    clock = ManualClock()
    workers = WorkerRegistry(clock=clock)
    first = register(workers, name="w", url="http://h/", jobs=["mail", "mail", "bill"], batch=5, priority_max=3)
    clock.advance(1)
    second = register(workers, name="v", style="lightjq", ttl=5.0)
    other = said_again(workers)
    assert other.list() == workers.list() == [first, second]
    assert first.jobs == ("mail", "bill")
    assert other.get(second.id) == second
    other.settings.take(other.settings.make(no_more([first.id]), now_ms=0, origin=1))
    assert other.list() == [second]
    workers.settings.take(other.settings.all("worker"))
    assert workers.list() == [second]


def test_one_server_that_registers_at_two_daemons_at_once_is_one_worker() -> None:
    here, there = WorkerRegistry(clock=ManualClock()), WorkerRegistry(clock=ManualClock())
    assert register(here, name="w", url="http://h/").id == register(there, name="w", url="http://h/").id


def test_a_sign_at_another_daemon_keeps_a_registration() -> None:
    clock = ManualClock()
    workers = WorkerRegistry(clock=clock)
    worker = register(workers, name="w", ttl=10.0)
    for _ in range(5):
        clock.advance(1.0)
        workers.record_signs({})
    for _ in range(9):
        clock.advance(1.0)
        workers.record_signs({worker.id: 0})
    assert workers.get(worker.id) is not None
    for _ in range(13):
        clock.advance(1.0)
        workers.record_signs({})
    assert workers.get(worker.id) is None, "two seconds later than the last sign took to come here"
    workers.record_signs({worker.id: 0})
    assert workers.get(worker.id) == worker, "it was silent for too long, and speaks again"


def test_nobodys_silence_counts_while_no_signs_of_others_can_come() -> None:
    clock = ManualClock()
    workers = WorkerRegistry(clock=clock)
    worker = register(workers, name="w", ttl=10.0)
    workers.record_signs({})
    clock.advance(1_000.0)
    assert workers.get(worker.id) is not None, "the store was away: whoever heard of it could not say so"
    workers.record_signs({})
    clock.advance(1.0)
    workers.record_signs({worker.id: 0})
    assert workers.get(worker.id) is not None
    for _ in range(13):
        clock.advance(1.0)
        workers.record_signs({})
    assert workers.get(worker.id) is None


def test_a_daemon_that_alone_does_not_reach_a_worker_leaves_it_to_the_others() -> None:
    clock = ManualClock()
    workers = WorkerRegistry(clock=clock)
    worker = register(workers, name="w", url="http://h/")
    for _ in range(700):
        clock.advance(1.0)
        workers.record_signs({worker.id: 0} if _ < 350 else {})
        workers.unreachable(worker.id)
        assert _ > 640 or workers.get(worker.id) is not None, _
    assert workers.get(worker.id) is None
    assert workers.leaving == {worker.id: "unreachable"}


def test_a_repetition_from_elsewhere_says_nothing_new_and_one_from_nearer_does() -> None:
    workers = WorkerRegistry(clock=ManualClock())
    card = WorkerSpec(name="w", url="http://8.8.8.8/", max_jobs=1)
    near, far = workers.check(card), workers.check(card, peer="10.0.0.1")
    workers.register(card, peer="10.0.0.1")
    assert not workers.is_registered(near)
    workers.register(card)
    assert workers.is_registered(near)
    assert workers.is_registered(far)
    assert workers.is_registered(msgspec.structs.replace(near, machine="another"))
    assert not workers.is_registered(msgspec.structs.replace(far, max_jobs=2))


def test_signs_are_told_now_and_then() -> None:
    clock = ManualClock()
    workers = WorkerRegistry(clock=clock)
    signs = workers.signs()
    worker, kept = register(workers, name="w", ttl=8.0), register(workers, name="v")
    assert signs == {worker.id, kept.id}
    told = []
    for second in range(40):
        signs.clear()
        clock.advance(1.0)
        workers.reached(worker.id)
        workers.reached(kept.id)
        told += [(second + 1, one) for one in signs]
    assert [second for second, one in told if one == worker.id] == [*range(2, 41, 2)]
    assert [second for second, one in told if one == kept.id] == [30]


def test_watchers_are_told() -> None:
    workers = WorkerRegistry(None, clock=ManualClock())
    told: list[int] = []
    workers.watch(lambda: told.append(1))
    worker = register(workers, name="w")
    register(workers, name="w", worker_id=worker.id)
    workers.unregister(worker.id)
    assert len(told) == 3


def test_what_a_worker_takes() -> None:
    workers = WorkerRegistry(None, clock=ManualClock())
    some = register(workers, name="w", jobs=["mail"], priority_min=-1, priority_max=1)
    assert [some.takes("mail", priority) for priority in (-2, -1, 0, 1, 2)] == [False, True, True, True, False]
    assert not some.takes("bill", 0)
    assert register(workers, name="w").takes("bill", 2**31 - 1)


def test_a_stored_handler_is_read_whatever_options_an_earlier_release_had() -> None:
    """One that cannot be read counts as deleted: nothing would run its jobs, and `server_only` would hold no more."""
    options = {"colour": "red", "max_jobs": 3}
    version = {
        "lang": "http",
        "body": "http://h/",
        "number": 2,
        "set_at_ms": 6,
        "server_only": True,
        "options": options,
    }
    settings = SettingTable()
    registry = WorkerRegistry(settings, clock=ManualClock())
    packed = msgspec.msgpack.encode({"last": 2, "versions": [version]})
    settings.take(settings.make({(HANDLER, "mail"): packed}, now_ms=0, origin=1))
    assert not settings.complaints()
    handler = registry.handler("mail")
    assert handler is not None
    assert (handler.last, handler.versions[0].server_only, handler.versions[0].options.max_jobs) == (2, True, 3)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(handler), type=Handler) == handler
    with pytest.raises(msgspec.ValidationError, match="colour"):
        msgspec.convert(options, HandlerOptions)
