"""One request to the daemon: MessagePack out and in, statuses and broken connections turned into named errors."""

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
    more_doubtful,
    refused_after,
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

TRIES_MAX = 4  # of a request that may be repeated: with the back-off below, a daemon's restart of about a second
UNKNOWN = 401  # to this daemon the token lets nobody in
BACKOFF = Backoff(first_s=0.1, factor=3.0, cap_s=2.0)
TARGET_CHARS_MAX = 1 << 16  # of a URL's rest: a daemon takes less
LINE_BYTES_MAX = 4 << 20  # of a stream: an event has a million characters at most
PATH_CHARS_MAX = 64  # of a path quoted in one
SAFE = "/?&=%:@!$'()*+,;~"  # of a URL's rest, beside letters, digits and `_.-`: the rest is quoted
_PLAIN = re.compile(rf"/[\w.{SAFE}-]*", re.ASCII)


def _sleep(seconds: float) -> None:
    threading.Event().wait(seconds)


class Http:
    """Sends requests to one daemon of a store, to the next when it does not answer; safe between threads."""

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
        self._at = 0  # the one that answers, as far as is known; threads may disagree for a request
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
        # By process: a child of a fork must not write to its parent's connections, nor close them. So it leaves them
        # alone, and makes its own. Nothing is locked here: another thread may hold any lock at the moment of a fork.
        self._by_process: dict[int, Transport] = {}
        self._closed_in: set[int] = set()
        self._carrier()

    def close(self) -> None:
        self._closed_in.add(os.getpid())
        self._carrier().close()

    def _carrier(self) -> Transport:
        process = os.getpid()
        mine = self._by_process.get(process)
        if mine is None:  # else another thread may have been sooner
            mine = self._by_process.setdefault(process, self._transport or Connections(self.urls))
        return mine

    def _send(self, request: Request) -> Response:
        """Raises TransportError; ClientClosed where another thread closed it before."""
        if os.getpid() in self._closed_in:
            raise self._closed()
        return self._carrier().send(request)

    def _closed(self) -> ClientClosed:
        return ClientClosed(f"the client of {self.url} was closed; make another")

    @property
    def url(self) -> str:
        """Return the URL of the daemon that is asked first."""
        return self.urls[self._at]

    def speaking_for(self, tenant: str) -> "Http":
        """Return a view that speaks for one tenant, by the same connections; it needs no close."""
        _expect_header("name of the tenant", tenant)
        view = copy(self)
        view._headers = {**self._headers, "jqd-tenant": tenant}
        return view

    def beside(self, url: str) -> "Http":
        """Return a client of another daemon of the same store, with the same token; to be closed."""
        return Http(url, timeout_s=self._timeout_s, token=self._token, transport=self._transport)

    def pause(self, seconds: float) -> None:
        self._sleep(seconds)

    def call_for_map(self, what: str, method: str, path: str, **how: Any) -> dict[str, Any]:
        """As `call`, for an answer that is a map. `what`: names the call in the error where it is none."""
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
        """Return the daemon's answer: 2xx, or a status in `accept`; any other raises its error.

        `wait_s`: how long the daemon was asked to wait, on top of the usual timeout. A request that was not sent is
        repeated a few times; one of which a daemon says that it took nothing goes to the others. A request that may
        have been taken is repeated only if `repeatable`: if twice counts as once.
        Each time the next daemon is asked, and a pause is made when all have been. Where an earlier one may have taken
        it, and the last one did not, the error of the earlier one is raised, or is the refusal's `earlier`.
        All are asked of a token that one does not know: another may have made it while the store is away.
        """
        headers = self._headers if body is None else {**self._headers, "content-type": MSGPACK}
        target = _target(path, params)
        daemons = len(self.urls)
        doubt: JqdClientError | None = None
        known: Unavailable | None = None
        for tried in range(1, TRIES_MAX * daemons + 1):
            at, others = self._at, tried < daemons  # whether there are daemons that were not asked yet
            url = self.urls[at]
            try:
                response = self._send(
                    Request(method, url, target, headers, body, self._timeout_s, self._timeout_s + wait_s, wait_s > 0)
                )
            except TransportError as error:
                trouble = self._trouble(method, url, error)
                if method != "GET":  # which takes nothing
                    doubt = more_doubtful(doubt, trouble)
                if isinstance(trouble, Unreachable):
                    again = (repeatable or not trouble.sent) and (others or _by_tls(url, error) is None)
                else:
                    again = isinstance(trouble, TimedOut) and repeatable and others
                if tried == TRIES_MAX * daemons or not again:
                    raise doubt or trouble from error
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
                        raise doubt or known
                    raise refused_after(doubt, refused) from doubt
                known = refused
                if method != "GET":
                    doubt = more_doubtful(doubt, refused)
                if not (others and (repeatable or took_nothing(refused))):
                    raise doubt or refused
                self._leave(at)
        raise AssertionError("the last try answers or raises")

    def lines(self, path: str, headers: Mapping[str, str], quiet_s: float) -> Iterator[str]:
        """The lines of a stream, as they come, of the daemon that is asked first. Raises as `call`; TimedOut where it
        is silent for `quiet_s`."""
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
        """Ask another daemon from now on, after a pause that grows with the tries."""
        self._leave(self._at)
        self._sleep(BACKOFF.delay_s(tried, self._source))

    def _leave(self, at: int) -> None:
        """Use the next daemon from now on, unless another thread has moved on already."""
        if self._at == at:
            self._at = (at + 1) % len(self.urls)

    def _trouble(self, method: str, url: str, error: TransportError) -> JqdClientError:
        if os.getpid() in self._closed_in:
            return self._closed()
        if isinstance(error, SilentError):
            taken = "" if method == "GET" else "; it may have taken the request"
            return TimedOut(f"{url} did not answer within {self._timeout_s:g} s{taken}")
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
    """Return what stands behind the daemon's URL. Raises Invalid for names and ids that no URL carries."""
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
    """The lines of a stream of events; what is behind the last end of a line is not whole, and no line."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise JqdClientError(f"a stream has a line above {LINE_BYTES_MAX} bytes; is it a jqd daemon?")
        for line in lines:
            yield line.removesuffix(b"\r").decode(errors="replace")


def _expect_header(what: str, value: str) -> None:
    """Raises WrongToken, without the value: it is a secret."""
    if not value.isascii() or not value.isprintable():
        raise WrongToken(f"the {what} has characters that no HTTP header carries; is it one line, as it was given out?")


def _by_tls(url: str, error: TransportError) -> str | None:
    if not url.startswith("https:") or error.__cause__ is None:
        return None
    from jqd.client.trust import no_certificate, trouble_of_tls  # here, as few need it, and it loads OpenSSL

    # In TLS 1.3 a client may send before it is told that its certificate is missing; nothing of that is read.
    return (trouble_of_tls if isinstance(error, UnreachedError) else no_certificate)(url, error.__cause__)


def encode(value: Any) -> bytes:
    """Encode a body. Raises what msgspec raises for what MessagePack cannot carry."""
    return msgspec.msgpack.encode(value)


def query(**given: Any) -> dict[str, str]:
    """Return the query parameters that were given; True as 1."""
    return {key: "1" if value is True else str(value) for key, value in given.items() if value is not None}


def all_rows(http: Http, what: str, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the rows of a list, page by page. `limit`: rows of one page."""
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
    """Return what has gone of a list within the last day; none, too, of a daemon that does not say."""
    answer = http.call("GET", f"/v1/{what}", params=query(limit=1))
    return list(answer.body.get("gone") or ()) if isinstance(answer.body, dict) else []
