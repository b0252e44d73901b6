"""Who gives way when there are too many."""

from jqd.http.config import ListenerConfig
from jqd.http.connection_limit import FEW, ConnectionLimit, address_of


class Guest:
    """A connection that notes that it was asked to go."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.gone = False

    def give_way(self) -> None:
        self.gone = True


def test_the_oldest_idle_one_goes_and_the_busy_stay() -> None:
    crowd: ConnectionLimit[Guest] = ConnectionLimit(3, 3)
    first, second, third, fourth = (Guest("a") for _ in range(4))
    for guest in (first, second, third):
        assert crowd.join(guest)
    assert not crowd.join(fourth), "all are busy"
    for guest in (second, first):
        crowd.mark_idle(guest)
    assert crowd.idle() == [second, first]
    crowd.mark_busy(second)
    assert crowd.join(fourth)
    assert [guest.gone for guest in (first, second, third)] == [True, False, False]
    assert first not in crowd.present
    for _ in range(2):  # it ends a moment later, and leaves once more
        crowd.leave(first)
    crowd.mark_idle(first)
    assert crowd.idle() == []
    for guest in (second, third, fourth):
        crowd.leave(guest)
    assert not crowd.present
    assert not crowd._addresses


def test_one_address_leaves_room_for_others() -> None:
    crowd: ConnectionLimit[Guest] = ConnectionLimit(4, 2)
    ours, other = [Guest("a"), Guest("a")], Guest("b")
    assert all(crowd.join(guest) for guest in [*ours, other])
    crowd.mark_idle(other)
    assert not crowd.join(Guest("a")), "the idle one is another's"
    assert crowd.join(Guest("b"))
    crowd.mark_idle(ours[1])
    assert crowd.join(Guest("a"))
    assert [guest.gone for guest in [*ours, other]] == [False, True, False]


def test_two_addresses_that_are_busy_leave_a_part_for_all_others() -> None:
    crowd: ConnectionLimit[Guest] = ConnectionLimit(32, 24, 8)
    taken = [sum(crowd.join(Guest(address)) for _ in range(32)) for address in "abcdef"]
    assert taken == [24, FEW, FEW, 0, 0, 0], "24 are for whoever comes, and of eight each address gets its few"
    crowd = ConnectionLimit(32, 24, 8)
    many = [[guest for guest in (Guest(address) for _ in range(32)) if crowd.join(guest)] for address in "ab"]
    assert [len(its) for its in many] == [24, FEW]
    for guest in many[0][:10]:
        crowd.leave(guest)
    assert sum(crowd.join(Guest("b")) for _ in range(32)) == 6, "what is free beside that part"
    crowd.mark_idle(many[0][-1])
    last = Guest("b")
    assert crowd.join(last)
    assert many[0][-1].gone, "who is idle gives way as ever"


def test_who_a_peer_is() -> None:
    assert address_of("192.0.2.7") == "192.0.2.7"
    assert address_of("::ffff:192.0.2.7") == "192.0.2.7"
    assert address_of("2001:db8:1:2::1") == address_of("2001:db8:1:2:3:4:5:6")
    assert address_of("2001:db8:1:2::1") != address_of("2001:db8:1:3::1")
    assert address_of("fe80::1%lo") == address_of("fe80::2")


def test_one_address_may_have_three_quarters() -> None:
    assert ListenerConfig(connections_max=100).of_one_address() == 75
    assert ListenerConfig(connections_max=100).for_newcomers() == 12
    assert ListenerConfig(connections_max=100, address_connections_max=95).for_newcomers() == 5
    assert ListenerConfig(connections_max=100, address_connections_max=500).for_newcomers() == 0, (
        "a proxy is to have all"
    )
    assert ListenerConfig(connections_max=1).of_one_address() == 1
    assert ListenerConfig(connections_max=1).for_newcomers() == 0
    assert ListenerConfig(connections_max=100, address_connections_max=5).of_one_address() == 5
    assert 8 <= ListenerConfig().of_one_address() < ListenerConfig().total()
