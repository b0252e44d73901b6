"""No test talks to a daemon on the default port: it may be somebody's own."""

import subprocess
import sys

import pytest
import trio

from jqd.client import Client, Unreachable
from jqd.client.environ import URL_DEFAULT, daemon_urls

PORT = int(URL_DEFAULT.rpartition(":")[2])


def test_who_names_no_daemon_reaches_none() -> None:
    assert daemon_urls() == ["http://127.0.0.1:1"]
    told = subprocess.run([sys.executable, "-m", "jqd", "push", "mail"], capture_output=True, text=True, check=False)
    assert (told.returncode, "127.0.0.1:1" in told.stderr) == (4, True)
    with Client() as client, pytest.raises(Unreachable):
        client.ready()


async def test_who_names_the_default_port_is_refused() -> None:
    with trio.socket.socket() as client:
        for ask in (client.connect, client.bind):
            with pytest.raises(AssertionError, match="somebody's own daemon"):
                await ask(("127.0.0.1", PORT))
