"""What a service manager is told, and when it is told no more."""

import errno
import os
import socket
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from jqd.config import load
from jqd.loops.systemd import BEAT_S, Manager, SystemdNotifier
from tests.domain.test_lossy_stream import REFUSALS

WATCHDOG_S = 3.0


class Listener:
    """The manager's end of the socket."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0", 1) if address.startswith("@") else address)
        self._socket.setblocking(False)

    def heard(self) -> list[list[str]]:
        """Each message since the last look, as its lines."""
        found = []
        while True:
            try:
                found.append(self._socket.recv(4096).decode().splitlines())
            except BlockingIOError:
                return found

    def close(self) -> None:
        self._socket.close()


@pytest.mark.parametrize("abstract", [False, True])
async def test_the_watchdog_is_fed_only_while_the_dispatcher_comes_round(
    tmp_path: Path, mock_clock: MockClock, abstract: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"@{tmp_path}" if abstract else str(tmp_path / "notify")
    listener, rounds = Listener(address), [0]
    notify = SystemdNotifier(Manager(address, WATCHDOG_S), lambda: rounds[0], lambda: "takes jobs")
    async with trio.open_nursery() as nursery:
        await nursery.start(notify.run)

        async def beat() -> list[list[str]]:
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(WATCHDOG_S / 3)
            await trio.testing.wait_all_tasks_blocked()
            return listener.heard()

        fed = ["STATUS=takes jobs", "WATCHDOG=1"]
        starts, is_ready = ["EXTEND_TIMEOUT_USEC=30000000", *fed], ["READY=1", *fed]
        await trio.testing.wait_all_tasks_blocked()
        assert listener.heard() == [starts]
        assert await beat() == await beat() == [starts], "it begins only when it was heard what is registered"
        notify.ready()
        assert listener.heard() == [["READY=1", "STATUS=takes jobs"]]
        assert await beat() == [is_ready], "it has begun since the last beat, or only now; a message may be lost"
        rounds[0] += 1
        assert await beat() == [is_ready]
        assert await beat() == await beat() == [is_ready[:2]], "it stands still"
        assert capsys.readouterr().out.count("systemd.dispatch_stands") == 1
        rounds[0] += 1
        assert await beat() == [is_ready]
        notify.stop(25.0)
        assert listener.heard() == [["STOPPING=1", "EXTEND_TIMEOUT_USEC=35000000", "STATUS=takes jobs"]]
        assert await beat() == await beat() == [fed], "nothing is dispatched any more"
        nursery.cancel_scope.cancel()
    listener.close()


async def test_a_manager_that_is_gone_is_told_of_once_and_stops_nothing(
    tmp_path: Path, mock_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    notify = SystemdNotifier(Manager(str(tmp_path / "nobody")), lambda: 1, lambda: "takes jobs")
    async with trio.open_nursery() as nursery:
        await nursery.start(notify.run)
        for _ in range(3):
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(BEAT_S)
        nursery.cancel_scope.cancel()
    assert capsys.readouterr().out.count("systemd.not_reached") == 1


@pytest.mark.parametrize("code", REFUSALS, ids=errno.errorcode.get)
def test_whatever_the_managers_socket_refuses_is_told_and_stops_nothing(
    code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("jqd.loops.systemd.socket.socket.sendto", refuse)
    SystemdNotifier(Manager("/nowhere"), lambda: 1, lambda: "takes jobs").ready()
    assert capsys.readouterr().out.count("systemd.not_reached") == 1


def test_the_manager_is_what_the_environment_says() -> None:
    def manager(**environ: str) -> Manager:
        return load(environ=environ).manager

    assert manager() == Manager()
    assert manager(NOTIFY_SOCKET="/run/x", WATCHDOG_USEC="30000000") == Manager("/run/x", 30.0)
    assert manager(NOTIFY_SOCKET="/run/x", WATCHDOG_USEC="30000000", WATCHDOG_PID="1") == Manager("/run/x", None)
