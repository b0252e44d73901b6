"""Who is asked where the store is, and whose word counts. Real clusters and sentinels: test_cluster, test_sentinel."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

from jqd.domain.address import Address
from jqd.domain.errors import ConfigError, StoreAway, StoreChanged, StoreError, StoreRefused
from jqd.store import StoreConfig, open_store
from jqd.store.discover import SEEDS_MAX, Finder, finder_of
from jqd.store.keys import Keys
from jqd.store.scripts import translate
from tests.store.ensemble import SLOT, Node, start

KEYS = Keys("jqd")
CLUSTER = "redis+cluster://a:1,b:2,c:3"
SENTINEL = "redis+sentinel://a:1,b:2,c:3/jobs/4"
Answers = Mapping[str, Any]


class Seed:
    """A server that answers what it is told to, or fails."""

    def __init__(self, answers: Answers | Exception) -> None:
        self._answers = answers
        self._asked = ""

    def connect(self) -> None:
        if isinstance(self._answers, Exception):
            raise self._answers

    def send_command(self, *words: str) -> None:
        self._asked = " ".join(words)

    def read_response(self) -> Any:
        assert not isinstance(self._answers, Exception)
        answer = self._answers[self._asked]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def disconnect(self) -> None:
        self._asked = ""


def finder(url: str, seeds: Mapping[str, Answers | Exception], monkeypatch: pytest.MonkeyPatch) -> Finder:
    """Of a URL, asking these seeds; those that are not named are not there."""
    found = finder_of(url, KEYS)
    assert found is not None
    gone = redis.ConnectionError("refused")
    monkeypatch.setattr(found, "_connection", lambda at: Seed(seeds.get(at.host, gone)))
    return found


def node(master: str, epoch: int, *, state: str = "ok", replicas: int = 0, slot: int = SLOT) -> Answers:
    """What a node says of our slot."""
    others = [[f"copy{n}".encode(), 10 + n, b"id", []] for n in range(replicas)]
    return {
        "CLUSTER INFO": f"cluster_state:{state}\r\ncluster_current_epoch:{epoch}\r\n".encode(),
        "CLUSTER SLOTS": [
            [0, slot - 1, [b"other", 9, b"id", []]],
            [slot, slot, [master.encode() if master else None, 7, b"id", []], *others],
        ],
    }


def sentinel(master: str, epoch: int) -> Answers:
    """What a sentinel says of our service."""
    row = {"name": "jobs", "ip": master, "port": "7", "flags": "master", "config-epoch": str(epoch)}
    return {"SENTINEL MASTER jobs": [part.encode() for pair in row.items() for part in pair]}


@pytest.mark.parametrize(("url", "answers"), [(CLUSTER, node), (SENTINEL, sentinel)])
def test_who_knows_of_the_latest_failover_is_right(
    url: str, answers: Callable[[str, int], Answers], monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: dict[str, Answers | Exception] = {"a": answers("old", 4), "b": answers("new", 6), "c": answers("older", 2)}
    assert finder(url, seeds, monkeypatch).find() == Address("new", 7)


@pytest.mark.parametrize(("url", "answers"), [(CLUSTER, node), (SENTINEL, sentinel)])
def test_one_that_answers_is_enough(
    url: str, answers: Callable[[str, int], Answers], monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: dict[str, Answers | Exception] = {"a": redis.TimeoutError("silent"), "c": answers("m", 1)}
    assert finder(url, seeds, monkeypatch).find() == Address("m", 7)


def test_a_node_that_lost_sight_of_the_others_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert finder(CLUSTER, {"a": node("old", 9, state="fail"), "b": node("new", 8)}, monkeypatch).find().host == "new"
    with pytest.raises(redis.ConnectionError, match="not in touch"):
        finder(CLUSTER, {"a": node("old", 9, state="fail")}, monkeypatch).find()


def test_a_node_without_a_name_is_where_it_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert finder(CLUSTER, {"b": node("", 1)}, monkeypatch).find() == Address("b", 7)


def test_nodes_that_were_seen_are_asked_when_all_seeds_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: dict[str, Answers | Exception] = {"a": node("m", 1)}
    one = finder(CLUSTER, seeds, monkeypatch)
    one.find()
    del seeds["a"]
    seeds["other"] = node("n", 2)
    assert one.find() == Address("n", 7)


def test_a_store_with_a_copy_knows_that_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: dict[str, Answers | Exception] = {}
    one = finder(CLUSTER, seeds, monkeypatch)
    told = []
    for replicas in (0, 1, 0):
        seeds["a"] = node("m", 1, replicas=replicas)
        one.find()
        told.append(one.replicated)
    assert told == [False, True, True]
    assert finder(SENTINEL, {}, monkeypatch).replicated


@pytest.mark.parametrize(
    ("url", "seed", "meaning", "words"),
    [
        (CLUSTER, redis.ConnectionError("refused"), StoreAway, "a:1: refused"),
        (CLUSTER, {"CLUSTER INFO": redis.ResponseError("cluster support disabled")}, StoreRefused, "support disabled"),
        (CLUSTER, {"CLUSTER INFO": b"nothing"}, StoreRefused, "not understood"),
        (CLUSTER, {**node("m", 1), "CLUSTER SLOTS": [[0]]}, StoreRefused, "not understood"),
        (CLUSTER, {**node("m", 1), "CLUSTER SLOTS": []}, StoreAway, f"no node has slot {SLOT}"),
        (CLUSTER, redis.AuthenticationError("wrong password"), StoreRefused, "wrong password"),
        (SENTINEL, {"SENTINEL MASTER jobs": redis.ResponseError("No such master")}, StoreRefused, "No such master"),
        (SENTINEL, {"SENTINEL MASTER jobs": [b"ip", b"h"]}, StoreRefused, "not understood"),
        (SENTINEL, sentinel("", 1), StoreRefused, "no address"),
    ],
)
def test_why_nobody_tells_is_said_as_what_it_is(
    url: str, seed: Answers | Exception, meaning: type[StoreError], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(redis.RedisError) as caught:
        finder(url, dict.fromkeys("abc", seed), monkeypatch).find()
    told = translate(caught.value, "look", KEYS)
    assert type(told) is meaning
    assert words in (told.in_full if isinstance(told, StoreAway) else str(told))


def test_what_passes_is_waited_for_although_others_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(redis.ConnectionError) as caught:
        finder(CLUSTER, {"a": redis.AuthenticationError("wrong password")}, monkeypatch).find()
    assert type(translate(caught.value, "look", KEYS)) is StoreAway


def test_a_url_says_who_is_asked_and_how_the_store_is_spoken_to() -> None:
    one = finder_of("rediss+cluster://u:p%40w@a:1,[::1]:2?ssl_cert_reqs=none", KEYS)
    assert one is not None
    assert one.seeds == (Address("a", 1), Address("::1", 2))
    assert one.url == "rediss://u:p%40w@found.invalid/0?ssl_cert_reqs=none"
    assert issubclass(one.connections(), redis.SSLConnection)
    two = finder_of("redis+sentinel://u:p@a:1/my%20jobs/3?sentinel_password=s%2F&health_check_interval=9", KEYS)
    assert two is not None
    assert two.url == "redis://u:p@found.invalid/3?health_check_interval=9"
    seed = two._connection(Address("a", 1))
    assert (seed.host, seed.port, seed.db, seed.username, seed.password) == ("a", 1, 0, None, "s/")
    assert not issubclass(two.connections(), redis.SSLConnection)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    """Two servers that do not know each other: to each it seems that it is the store."""
    with ExitStack() as stack:
        yield start(stack, Node(tmp_path / "1")), start(stack, Node(tmp_path / "2"))


async def test_a_server_that_answers_but_is_the_store_no_more_is_left_at_the_next_renewal(
    pair: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = pair
    seeds: dict[str, Answers | Exception] = {}

    def name(server: Node) -> None:
        seeds["a"] = {
            "SENTINEL MASTER jobs": [b"ip", b"127.0.0.1", b"port", b"%d" % server.port, b"config-epoch", b"1"]
        }

    async with open_store(StoreConfig(url="redis+sentinel://a:1/jobs")) as store:
        monkeypatch.setattr(store._finder, "_connection", lambda at: Seed(seeds[at.host]))
        name(here)
        before = await store.look(fresh=True)
        owner = await store.reserve_sysid("d1", True, through=True)
        await store.renew_sysid(owner, through=True)
        name(there)
        with pytest.raises(StoreChanged, match=f"at 127.0.0.1:{there.port} by now"):
            await store.renew_sysid(owner, through=True)
        name(here)
        assert (await store.look(fresh=False))[:2] == before[:2]  # the fence went on
        await store.renew_sysid(owner, through=True)
        seeds["a"] = redis.ConnectionError("no sentinel lives")
        await store.renew_sysid(owner, through=True)  # nobody can tell: the server it has is as good as before
        here.ask("CONFIG", "SET", "min-replicas-to-write", 1)
        with pytest.raises(StoreAway, match="NOREPLICAS"):
            await store.renew_sysid(owner, through=True)
        name(there)
        with pytest.raises(StoreChanged, match=f"at 127.0.0.1:{there.port} by now"):
            await store.renew_sysid(owner, through=True)
        assert (await store.look(fresh=False)).identity != before.identity


@pytest.mark.parametrize("url", ["redis://h:1/0", "rediss://h:1/0", "unix:///s"])
def test_a_plain_url_names_its_server(url: str) -> None:
    assert finder_of(url, KEYS) is None


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis+cluster://", "'' is not host:port"),
        ("redis+cluster://a", "'a' is not host:port"),
        ("redis+cluster://a:1,,b:2", "'' is not host:port"),
        ("redis+cluster://a:0", "'a:0' is not host:port"),
        ("redis+cluster://a:65536", "'a:65536' is not host:port"),
        ("redis+cluster://a:1/3", "database 0 only"),
        (f"redis+cluster://{','.join(f'h:{n + 1}' for n in range(SEEDS_MAX + 1))}", "are enough"),
        ("redis+sentinel://a:1", "must name the service"),
        ("redis+sentinel://a:1/jobs/x", "must name the service"),
        ("redis+cluster://a:1?socket_timeout=soon", "not understood"),
        ("redis+ring://a:1", r"'redis\+ring://a:1' must begin with one of"),
        ("localhost:6379", r"'localhost:6379' must .*; did you mean 'redis://localhost:6379'\?"),
        ("me:hunter2@localhost", "^store.url must begin"),
    ],
)
async def test_a_wrong_url_is_refused_by_what_is_wrong(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        async with open_store(StoreConfig(url=url)):
            raise AssertionError("it was opened")
