"""Requests of a client that writes bytes, and the answers to them."""

import json
from typing import Any

from jqd.http.config import ListenerConfig
from tests.http.transports import Talk

GET = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = b"GET /z HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
CONFIG = ListenerConfig()


def post(length: int, *more: bytes) -> bytes:
    return b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n" % length + b"".join(more) + b"\r\n"


def answers(sent: bytes) -> list[tuple[int, bytes]]:
    """Status and body of each answer with a length."""
    found = []
    while sent:
        head, _, sent = sent.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)
        found.append((int(lines[0].split()[1]), sent[:length]))
        sent = sent[length:]
    return found


async def answered(talk: Talk) -> list[tuple[int, bytes]]:
    return answers(await talk.wait_over())


async def refused(talk: Talk, status: int) -> dict[str, Any]:
    """The one answer is this problem, and the connection is over."""
    sent = await talk.wait_over()
    assert b"content-type: application/problem+json\r\n" in sent
    assert b"connection: close\r\n" in sent
    ((told, body),) = answers(sent)
    problem: dict[str, Any] = json.loads(body)
    assert (told, problem["status"]) == (status, status), problem
    return problem
