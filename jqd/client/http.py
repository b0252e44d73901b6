"""Sends requests to daemons and decodes their answers, both in MessagePack. Turns refusals and broken connections into
named errors."""

import os
import random
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from jqd import __version__
from jqd.client.answer import Answer, decoded, error_of, odd
from jqd.client.connections import Connections
from jqd.client.environ import checked_urls
from jqd.client.errors import (
    ClientClosed,
    Invalid,
    JqdClientError,
    TimedOut,
    Unavailable,
    Unreachable,
    WrongToken,
    add_earlier_error,
    error_to_raise,
    took_nothing,
)
from jqd.client.transport import (
    CrowdedError,
    LostError,
    Request,
    Response,
    SilentError,
    Transport,
    TransportError,
    UnreachedError,
)
from jqd.domain.backoff import Backoff
from jqd.domain.media import MSGPACK

TRIES_MAX = 4  # of a repeatable request: with the back-off below they outlast a daemon's restart of about a second
UNKNOWN = 401  # the daemon does not know the token
# No daemon answers so: a proxy before it sent the request, and lost the answer, or waited in vain for one.
BAD_GATEWAY, GATEWAY_TIMEOUT = 502, 504
BACKOFF = Backoff(first_s=0.1, factor=3.0, cap_s=2.0)
TARGET_CHARS_MAX = 1 << 16  # of path and query: a daemon takes less
LINE_BYTES_MAX = 4 << 20  # of a stream's line: an event has a million characters at most
PATH_CHARS_MAX = 64  # of a path quoted in an error
SAFE = "/?&=%:@!$'()*+,;~"  # not quoted in path and query, nor are letters, digits and `_.-`
_PLAIN = re.compile(rf"/[\w.{SAFE}-]*", re.ASCII)


def _sleep(seconds: float) -> None:
    threading.Event().wait(seconds)


class Http:
    """Sends requests to one daemon of a store. When that daemon does not answer, it changes to the next. Threads may
    share it."""

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        timeout_s: float,
        token: str | None,
        tenant: str | None = None,
        transport: Transport | None = None,
        source: random.Random | None = None,
        sleep: Callable[[float], None] = _sleep,
    ) -> None:
        self.urls = checked_urls(urls)
        self._at = 0  # index of the URL that is asked first; threads may disagree for one request
        self._timeout_s = timeout_s
        self._token = token
        self._source = source or random.Random()
        self._sleep = sleep
        for what, value in (("token", token), ("name of the tenant", tenant)):
            _expect_header(what, value or "")
        headers = {"accept": MSGPACK, "user-agent": f"jqd-client/{__version__}"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        if tenant is not None:
            headers["jqd-tenant"] = tenant
        self._headers = headers
        self._transport = transport
        # By process id: a forked child must neither write to its parent's connections nor close them, so it makes its
        # own. No lock is used: another thread may hold it at the moment of a fork.
        self._by_process: dict[int, Transport] = {}
        self._closed_in: set[int] = set()
        self._carrier()

    def close(self) -> None:
        self._closed_in.add(os.getpid())
        self._carrier().close()

    def _carrier(self) -> Transport:
        process = os.getpid()
        mine = self._by_process.get(process)
        if mine is None:  # setdefault: another thread may be making one, too
            mine = self._by_process.setdefault(process, self._transport or Connections(self.urls))
        return mine

    def _send(self, request: Request) -> Response:
        """Send a request. Raises TransportError; ClientClosed if another thread closed the client."""
        if os.getpid() in self._closed_in:
            raise self._closed()
        response = self._carrier().send(request)
        if response.status in (BAD_GATEWAY, GATEWAY_TIMEOUT):
            kind = LostError if response.status == BAD_GATEWAY else SilentError
            raise kind(f"a proxy before it answered {response.status}")
        return response

    def _closed(self) -> ClientClosed:
        return ClientClosed(f"the client of {self.url} was closed; make another")

    @property
    def url(self) -> str:
        """Return the URL of the daemon that is asked first at present."""
        return self.urls[self._at]

    def speaking_for(self, tenant: str) -> "Http":
        """Return a view that acts for one tenant. It shares the connections and need not be closed."""
        _expect_header("name of the tenant", tenant)
        view = copy(self)
        view._headers = {**self._headers, "jqd-tenant": tenant}
        return view

    def beside(self, url: str) -> "Http":
        """Return an `Http` for another daemon of the same store, with the same token. The caller must close it."""
        return Http(url, timeout_s=self._timeout_s, token=self._token, transport=self._transport)

    def pause(self, seconds: float) -> None:
        self._sleep(seconds)

    def call_for_map(self, what: str, method: str, path: str, **how: Any) -> dict[str, Any]:
        """Make a request with `call` (`how`: its further arguments), and return the body of the answer, which must be a
        map. `what`: names the request in the error that is raised for any other body."""
        answer = self.call(method, path, **how)
        if not isinstance(answer.body, dict):
            raise odd(what, answer)
        return answer.body

    def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        wait_s: float = 0.0,
        repeatable: bool = True,
        accept: tuple[int, ...] = (),
    ) -> Answer:
        """Make a request and return the answer, if its status is 2xx or in `accept`. Any other status raises an error.

        `wait_s`: how long the daemon is asked to wait, on top of the usual timeout. `repeatable`: whether the request
        counts once if it arrives twice. Number of tries, each at the next daemon, with a pause when all were asked:

            not sent                       up to TRIES_MAX at each daemon
            the connection broke           the same, if `repeatable`
            no answer in time              one at each daemon, if `repeatable`
            429, 503, 507                  one at each daemon, if `repeatable` or nothing was taken
            401 (while the store is away   one at each daemon
            only one may know the token)

        If an earlier daemon may have taken the request and the last one did not, the error of the earlier daemon is
        raised, or becomes `earlier` of the last one's refusal.
        """
        headers = self._headers if body is None else {**self._headers, "content-type": MSGPACK}
        target = _target(path, params)
        daemons = len(self.urls)
        to_raise: JqdClientError | None = None  # of the tries so far, the error after which most may have been taken
        known: Unavailable | None = None  # the last refusal of a daemon that knows the token
        for tried in range(1, TRIES_MAX * daemons + 1):
            at, others = self._at, tried < daemons  # others: whether some daemons were not asked yet
            url = self.urls[at]
            try:
                response = self._send(
                    Request(method, url, target, headers, body, self._timeout_s, self._timeout_s + wait_s, wait_s > 0)
                )
            except TransportError as error:
                trouble = self._trouble(method, url, error)
                if method != "GET":  # a GET changes nothing
                    to_raise = error_to_raise(to_raise, trouble)
                if isinstance(trouble, Unreachable):
                    again = (repeatable or not trouble.sent) and (others or _by_tls(url, error) is None)
                else:
                    again = isinstance(trouble, TimedOut) and repeatable and others
                if tried == TRIES_MAX * daemons or not again:
                    last = to_raise or trouble
                    # Where nothing was sent its text says it all: a chain of tracebacks adds nothing.
                    raise last from None if isinstance(last, Unreachable) and not last.sent else error
                self._leave(at)
                if tried % daemons == 0:
                    self._sleep(BACKOFF.delay_s(tried // daemons, self._source))
            else:
                answer = Answer(response.status, decoded(url, response))
                if response.is_success or response.status in accept:
                    return answer
                refused = error_of(response, answer.body)
                if refused.status == UNKNOWN and others and self._token:
                    self._leave(at)
                    continue
                if not isinstance(refused, Unavailable):
                    if refused.status == UNKNOWN and known is not None and self._token:
                        raise to_raise or known
                    raise add_earlier_error(to_raise, refused) from to_raise
                known = refused
                if method != "GET":
                    to_raise = error_to_raise(to_raise, refused)
                if not (others and (repeatable or took_nothing(refused))):
                    raise to_raise or refused
                self._leave(at)
        raise AssertionError("the last try answers or raises")

    def lines(self, path: str, headers: Mapping[str, str], quiet_s: float) -> Iterator[str]:
        """Yield the lines of a stream from one daemon as they come. Raises the error of a daemon that refuses or cannot
        be reached, and TimedOut if nothing comes for `quiet_s` seconds."""
        url, target = self.url, _target(path)
        every = {**self._headers, **headers}
        try:
            response = self._send(
                Request("GET", url, target, every, None, self._timeout_s, quiet_s, waits=True, streams=True)
            )
            if not response.is_success:
                raise error_of(response, decoded(url, response))
            yield from _lines(response.pieces or [response.body])
        except TransportError as error:
            raise self._trouble("GET", url, error) from error

    def leave(self, tried: int) -> None:
        """Ask the next daemon from now on, after a pause that grows with the number of failed tries (`tried`)."""
        self._leave(self._at)
        self._sleep(BACKOFF.delay_s(tried, self._source))

    def _leave(self, at: int) -> None:
        """Ask the next daemon from now on, unless another thread has changed the daemon already. `at`: the index of the
        daemon to leave."""
        if self._at == at:
            self._at = (at + 1) % len(self.urls)

    def _trouble(self, method: str, url: str, error: TransportError) -> JqdClientError:
        if os.getpid() in self._closed_in:
            return self._closed()
        if isinstance(error, SilentError):
            taken = "" if method == "GET" else "; it may have taken the request"
            return TimedOut(f"{url} did not answer within {self._timeout_s:g} s ({error}){taken}")
        if isinstance(error, CrowdedError):
            return Unreachable(f"this client is busy, {error}; nothing was sent", sent=False)
        if (refusal := _by_tls(url, error)) is not None:
            return Unreachable(f"{refusal}; nothing was sent", sent=False)
        why = str(error) or type(error.__cause__ or error).__name__
        if isinstance(error, LostError):
            message = f"the connection to {url} broke before the answer came ({why}); the request may have arrived"
            return Unreachable(message, sent=True)
        message = f"no daemon answers at {url} ({why}); nothing was sent. Start one with `jqd serve`, or check the URL"
        return Unreachable(message, sent=False)


def _target(path: str, params: Mapping[str, str] | None = None) -> str:
    """Return path and query, quoted for a URL. Raises Invalid for names and ids that no URL can hold."""
    try:
        target = f"{path}{'&' if '?' in path else '?'}{urlencode(params)}" if params else path
        if len(target) > TARGET_CHARS_MAX:
            raise _cannot_ask(path, "it is too long for a URL", 414)
        if not _PLAIN.fullmatch(target):
            if not target.startswith("/") or any(each.isascii() and not each.isprintable() for each in target):
                raise _cannot_ask(path, "a path begins with / and has no control characters", 414)
            target = quote(target, safe=SAFE)
    except UnicodeEncodeError as error:
        raise _cannot_ask(path, str(error), 400) from error
    return target


def _cannot_ask(path: str, why: str, status: int) -> Invalid:
    return Invalid(f"{path[:PATH_CHARS_MAX]} cannot be asked for: {why}; nothing was sent", status=status)


def _lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines of a stream; drops an unfinished last line."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise JqdClientError(f"a stream has a line above {LINE_BYTES_MAX} bytes; is it a jqd daemon?")
        for line in lines:
            yield line.removesuffix(b"\r").decode(errors="replace")


def _expect_header(what: str, value: str) -> None:
    """Raise WrongToken if no HTTP header can hold the value. The message does not contain it, because it is secret."""
    if not value.isascii() or not value.isprintable():
        raise WrongToken(f"the {what} has characters that no HTTP header carries; is it one line, as it was given out?")


def _by_tls(url: str, error: TransportError) -> str | None:
    if not url.startswith("https:") or error.__cause__ is None:
        return None
    from jqd.client.trust import no_certificate, trouble_of_tls  # here, as few need it, and it loads OpenSSL

    # In TLS 1.3 a client may send before it learns that its certificate is missing; the daemon reads none of that.
    return (trouble_of_tls if isinstance(error, UnreachedError) else no_certificate)(url, error.__cause__)


def encode(value: Any) -> bytes:
    """Encode the body of a request. Raises msgspec's errors for values that MessagePack cannot hold."""
    return msgspec.msgpack.encode(value)


def query(**given: Any) -> dict[str, str]:
    """Return the query parameters that are not None, as texts; True becomes 1."""
    return {key: "1" if value is True else str(value) for key, value in given.items() if value is not None}


def all_rows(http: Http, what: str, limit: int | None = None) -> list[dict[str, Any]]:
    """Return all rows of the list at `/v1/{what}`, which is read page by page. `limit`: rows in a page; None: the
    daemon's default."""
    rows: list[dict[str, Any]] = []
    cursor = ""
    while True:
        answer = http.call("GET", f"/v1/{what}", params=query(limit=limit, cursor=cursor or None))
        fields = answer.body if isinstance(answer.body, dict) else {}
        if not isinstance(fields.get(what), list):
            raise odd(f"a question for {what}", answer)
        rows += fields[what]
        cursor = fields.get("cursor") or ""
        if not cursor:
            return rows


def gone_rows(http: Http, what: str) -> list[dict[str, Any]]:
    """Return the workers or daemons (`what`) that the list at `/v1/{what}` has lost within the last day; empty if the
    daemon does not say."""
    answer = http.call("GET", f"/v1/{what}", params=query(limit=1))
    return list(answer.body.get("gone") or ()) if isinstance(answer.body, dict) else []
