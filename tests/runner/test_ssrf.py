"""Nobody reaches through the daemon what he could not reach without it: when he registers, nor later."""

import math
import socket
import threading
from ipaddress import ip_address
from typing import Any

import pytest
import trio
import trio.testing

from jqd.domain.address import ip_of
from jqd.domain.errors import Invalid
from jqd.runner import SsrfGuard, WorkerRegistry, WorkerSpec, ssrf
from jqd.runner import look_up as looks
from jqd.runner.ssrf import LOOK_UP_S, AddressPolicy, policy_of
from jqd.runner.transport import network, post
from jqd.runner.transport.http1 import Origin
from jqd.runner.transport.network import NEXT_ADDRESS_S
from jqd.testing.clock import ManualClock
from tests.harness.worker import open_worker
from tests.runner.conftest import OpenHouse, hold, ids

NEVER = [
    "169.254.169.254", "169.254.1.1", "fe80::1", "fe80::1%eth0", "100.100.100.200", "168.63.129.16", "192.0.0.192",
    "fd00:ec2::254", "fd20:ce::254", "fd00:42::42", "0.0.0.0", "0.1.2.3", "::", "224.0.0.1", "255.255.255.255",
    "240.0.0.1", "ff02::1",
    "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::169.254.169.254", "[fe80::1]",
]  # fmt: skip
LOOPBACK = ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"]
PRIVATE = ["10.1.2.3", "172.16.0.1", "192.168.0.1", "100.64.0.1", "fd12::1", "fec0::1",
    "::ffff:10.0.0.1", "2002:a00:1::", "64:ff9b:1:a00:0:100:808:808",
]  # fmt: skip
PUBLIC = ["93.184.216.34", "2606:2800:220:1::1", "::ffff:8.8.8.8"]
PEERS = {
    None: 2,
    "127.0.0.1": 2,
    "::1": 2,
    "10.9.9.9": 1,
    "fd12::9": 1,
    "fe80::9%eth0": 1,
    "8.8.8.8": 0,
    "nonsense": 0,
    "64:ff9b::7f00:1": 0,
    "2002:7f00:1::1": 0,
    "64:ff9b:1:a00:0:100:808:808": 0,
    "::ffff:127.0.0.1": 2,
}


@pytest.mark.parametrize("peer", PEERS)
def test_who_may_name_what(peer: str | None) -> None:
    standing, reach = policy_of(peer), SsrfGuard()
    for level, addresses in enumerate((PUBLIC, PRIVATE, LOOPBACK, NEVER)):
        for address in addresses:
            assert (reach.why_not(address, standing) is None) == (level <= PEERS[peer]), address


def test_networks_say_it_for_all_but_for_what_is_never_one() -> None:
    reach = SsrfGuard(["10.1.0.0/16", "169.254.0.0/16", "::1/128"])
    for standing in (AddressPolicy.OUTSIDE, AddressPolicy.LOOPBACK):
        assert reach.why_not("10.1.9.9", standing) is None
        assert reach.why_not("::1", standing) is None
        assert "worker_networks" in str(reach.why_not("10.2.0.1", standing))
        assert "worker_networks" in str(reach.why_not("8.8.8.8", standing))
        assert reach.why_not("169.254.169.254", standing) is not None


def test_a_callback_goes_to_no_address_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would pass the firewall: to a store, for instance, that listens on all addresses."""
    assert ssrf.is_own(ip_address("127.0.0.1"))
    assert not ssrf.is_own(ip_address("192.0.2.1"))
    monkeypatch.setattr(ssrf, "is_own", lambda address: str(address) == "93.184.216.34")
    for address in ("93.184.216.34", "::ffff:93.184.216.34"):
        assert SsrfGuard().why_not(address, AddressPolicy.CALLBACK) == ssrf.NOT_PUBLIC
        assert SsrfGuard(callback_networks=["93.184.216.0/24"]).why_not(address, AddressPolicy.CALLBACK) is None
        assert SsrfGuard().why_not(address, AddressPolicy.OUTSIDE) is None, "a worker of this machine may be there"
    assert SsrfGuard().why_not("8.8.8.8", AddressPolicy.CALLBACK) is None


Names = dict[str, list[str]]
NAMES: Names = {
    "inside.test": ["10.1.2.3"],
    "both.test": ["10.1.2.3", "93.184.216.34"],
    "metadata.test": ["169.254.169.254"],
    "2130706433": ["127.0.0.1"],
    "none.test": [],
}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """What the resolver says."""
    known, real = dict(NAMES), looks.resolve

    async def resolve(host: str, port: int, owner: str) -> list[Any]:
        if ip_of(host) is not None:
            return await real(host, port, owner)
        await trio.lowlevel.checkpoint()
        if host == "slow.test":
            await trio.sleep_forever()
        if host not in known:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in known[host]]

    monkeypatch.setattr(looks, "resolve", resolve)
    return known


@pytest.mark.parametrize(
    ("url", "peer", "why"),
    [
        ("http://169.254.169.254/latest", None, "metadata"),
        ("http://[fe80::1]:80/", "127.0.0.1", "link-local"),
        ("http://metadata.test/", None, "metadata"),
        ("http://localhost:9000/", "10.0.0.9", "own machine"),
        ("http://a.LOCALHOST.:9000/", "10.0.0.9", "own machine"),
        ("http://2130706433/", "10.0.0.9", "own machine"),
        ("http://127.0.0.1:6379/", "8.8.8.8", "own machine"),
        ("http://inside.test/", "8.8.8.8", "private"),
        ("http://10.0.0.5/", "8.8.8.8", "private"),
        ("http://10.0.0.5/", "10.0.0.9", None),
        ("http://inside.test/", "10.0.0.9", None),
        ("http://localhost:9000/", "127.0.0.1", None),
        ("http://both.test/", "8.8.8.8", None),
        ("http://not-yet.test/", "8.8.8.8", None),
        ("http://slow.test/", "8.8.8.8", None),
        ("http://none.test/", "8.8.8.8", None),
        (None, "8.8.8.8", None),
    ],
)
async def test_a_registration_is_judged_by_where_it_comes_from(
    names: object, url: str | None, peer: str | None, why: str | None, autojump_clock: None
) -> None:
    workers = WorkerRegistry(None, clock=ManualClock())
    began_s = trio.current_time()

    async def register() -> None:
        await workers.judge(url, peer)
        workers.register(WorkerSpec(name="w", url=url, max_jobs=1), peer=peer)

    if why is None:
        await register()
        assert workers.list()[0].standing is policy_of(peer)
    else:
        with pytest.raises(Invalid, match=why) as refused:
            await register()
        assert refused.value.faults[0].pointer == "/url"
    assert trio.current_time() - began_s <= LOOK_UP_S


async def test_a_callback_tells_nobody_which_names_and_addresses_the_daemons_network_has(names: object) -> None:
    guarded = network.Network(SsrfGuard(callback_networks=["169.254.0.0/16"]))
    told = set[str]()
    for host in ("inside.test", "metadata.test", "2130706433", "not-yet.test", "127.0.0.1", "10.1.2.3"):
        with pytest.raises(network.UnreachedError) as refused:
            await guarded.connect(Origin("http", host, 80, AddressPolicy.CALLBACK, "acme"), 30.0)
        told.add(str(refused.value))
    assert told == {f"not connected to: {ssrf.NOT_PUBLIC}"}


async def test_names_that_nobody_answers_take_the_threads_of_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty of one tenant took all threads of the daemon: metrics, the journal's and all other look-ups stood."""
    answered, real = threading.Event(), socket.getaddrinfo

    def ask(host: str, *args: Any, **more: Any) -> Any:
        if host.endswith(".slow.test"):
            answered.wait()
        return real("127.0.0.1", *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", ask)
    guard = SsrfGuard()
    try:
        async with trio.open_nursery() as nursery:
            for place in range(2 * looks.SHARE_MAX):
                nursery.start_soon(guard.judge_name, f"n{place}.slow.test", AddressPolicy.OUTSIDE)
                nursery.start_soon(looks.look_up, f"n{place}.slow.test", 80, "acme")
            await trio.testing.wait_all_tasks_blocked()
            with trio.fail_after(30):
                for owner in ("other", ""):
                    assert await looks.look_up("worker.test", 80, owner) == ["127.0.0.1"]
            assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
            nursery.cancel_scope.cancel()
    finally:
        answered.set()


async def test_a_name_that_leads_elsewhere_later_is_not_followed(names: Names, open_house: OpenHouse) -> None:
    names["moves.test"] = ["93.184.216.34"]
    async with open_worker() as worker, open_house() as house:
        port = worker.url.split(":")[2].split("/")[0]
        await house.workers.judge(f"http://moves.test:{port}/run", "8.8.8.8")
        card = house.register(f"http://moves.test:{port}/run", peer="8.8.8.8")
        names["moves.test"] = ["127.0.0.1"]
        held = hold(2)
        house.run(held)
        await house.stopped(2)
        assert house.returned == ids(held)
        assert worker.requests == []
        assert house.workers.unregister(card.id)
        house.register(f"http://moves.test:{port}/run", name="v")  # from this machine
        await house.run_to_end(hold(1))
        assert len(worker.requests) == 1, "the address that was judged is the one that is connected to"


async def test_the_loopback_of_another_machine_is_not_ours(
    open_house: OpenHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known everywhere, a registration must not lead each daemon to itself."""
    async with open_worker() as worker, open_house() as house:
        house.register(worker.url)
        await house.run_to_end(hold(1))
        monkeypatch.setattr("jqd.runner.ssrf.machine", lambda: "another")
        post._place.cache_clear()
        held = hold(1)
        house.run(held)
        await house.stopped(2)
        assert house.returned == ids(held)
        assert len(worker.requests) == 1


async def test_of_several_addresses_the_one_that_answers_is_taken(
    names: Names, autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[str, float]] = []

    async def dial(address: str, port: int) -> socket.socket:
        tried.append((address, trio.current_time() - began_s))
        if address == "10.0.0.1":
            await trio.sleep_forever()
        if address == "10.0.0.2":
            raise OSError(111, "refused")
        await trio.sleep(1)
        found[address] = socket.socket()
        return found[address]

    found: dict[str, socket.socket] = {}
    began_s = trio.current_time()
    names["many.test"] = ["169.254.0.1", "10.0.0.1", "10.0.0.3", "10.0.0.4"]
    monkeypatch.setattr(network, "dial", dial)
    line = await network.Network(SsrfGuard()).connect(Origin("http", "many.test", 80, AddressPolicy.INSIDE), 5.0)
    assert [*found] == ["10.0.0.3"]
    assert [address for address, _ in tried] == ["10.0.0.1", "10.0.0.3", "10.0.0.4"]
    assert tried[1][1] == pytest.approx(NEXT_ADDRESS_S)
    line.close()


@pytest.mark.parametrize(("host", "is_shared"), [("slow.test", False), ("gone.test", False), ("many.test", True)])
async def test_a_look_up_that_fails_speaks_for_no_other_tenant(
    names: Names, autojump_clock: None, monkeypatch: pytest.MonkeyPatch, host: str, is_shared: bool
) -> None:
    """A tenant whose share of look-ups was full had the workers of all others at that host and port backed off."""

    async def dial(address: str, port: int) -> socket.socket:
        await trio.sleep_forever()
        raise AssertionError

    names["many.test"] = ["10.0.0.1", "10.0.0.3"]
    monkeypatch.setattr(network, "dial", dial)
    with pytest.raises(network.UnreachedError) as raised:
        await network.Network(SsrfGuard()).connect(Origin("http", host, 80, AddressPolicy.INSIDE), 5.0)
    assert raised.value.is_shared is is_shared


async def test_no_more_than_two_of_many_addresses_are_tried_at_once_and_the_last_two_have_all_the_time(
    names: Names, autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a socket, and a request counts as one connection."""
    now, most, given_up = 0, 0, 0

    async def dial(address: str, port: int) -> socket.socket:
        nonlocal now, most, given_up
        now += 1
        most = max(most, now)
        try:
            await trio.sleep(1.0 if address in ("10.0.0.15", "10.0.0.16") else 9.0)
        except trio.Cancelled:
            given_up += 1
            raise
        finally:
            now -= 1
        return socket.socket()

    names["many.test"] = [f"10.0.0.{number}" for number in range(1, 20)]
    monkeypatch.setattr(network, "dial", dial)
    began_s = trio.current_time()
    line = await network.Network(SsrfGuard()).connect(Origin("http", "many.test", 80, AddressPolicy.INSIDE), 5.0)
    assert trio.current_time() - began_s == pytest.approx(14 * NEXT_ADDRESS_S + 1.0)
    assert (most, given_up, now) == (2, 15, 0)
    line.close()


@pytest.mark.parametrize(
    ("errors", "kind"),
    [
        ((101, 111), "ECONNREFUSED"),
        ((111, 101), "ECONNREFUSED"),
        ((113, 101), "EHOSTUNREACH"),
        ((None, 111), "too slow"),
        ((101, None), "too slow"),
    ],
)
async def test_of_several_addresses_the_error_of_one_that_refused_is_told(
    names: Names,
    autojump_clock: None,
    monkeypatch: pytest.MonkeyPatch,
    errors: tuple[int | None, int | None],
    kind: str,
) -> None:
    """A machine without IPv6 said that its network is unreachable, though no process listened."""

    async def dial(address: str, port: int) -> socket.socket:
        number = errors[int(address[-1]) - 1]
        await trio.sleep(0.1 if number else math.inf)
        raise OSError(number, "it failed")

    names["many.test"] = ["10.0.0.1", "10.0.0.2"]
    monkeypatch.setattr(network, "dial", dial)
    with pytest.raises(network.UnreachedError) as raised:
        await network.Network(SsrfGuard()).connect(Origin("http", "many.test", 80, AddressPolicy.INSIDE), 5.0)
    assert raised.value.kind == kind


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0x7f000001", "0", "00000000"])
async def test_no_spelling_of_an_address_hides_where_it_leads(host: str) -> None:
    """The system's own resolver reads these, and so do we: what it says is judged, and connected to."""
    assert ip_of(host) is None
    assert await SsrfGuard().judge_name(host, AddressPolicy.OUTSIDE) is not None
    with pytest.raises(network.UnreachedError, match="not connected to"):
        await network.Network(SsrfGuard()).connect(Origin("http", host, 9, AddressPolicy.OUTSIDE), 5.0)


async def test_no_proxy_of_the_environment_is_asked(open_house: OpenHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with open_worker() as worker, open_house() as house:
        house.register(worker.url)
        await house.run_to_end(hold(1))
        assert worker.requests[0].target == "/run"


async def test_a_registration_nobody_can_follow_costs_its_neighbours_nothing(open_house: OpenHouse) -> None:
    """Not so where nothing listens: then all of that host and port wait together."""
    async with open_worker() as worker, open_house() as house:
        house.register(worker.url, name="good", jobs=["good"])
        house.register(worker.url.replace("http:", "https:"), name="bad", jobs=["bad"])  # it speaks no TLS
        house.run(hold(1, jobtype="bad"))
        await house.stopped(1)
        assert len(house.returned) == 1
        failures = {each["name"]: each["failures"] for each in house.runner.stats()["workers"]}
        assert failures == {"good": 0, "bad": 1}
