"""One request to the daemon: MessagePack out and in, statuses and broken connections turned into named errors."""

import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

import httpx2
import msgspec

from jqd import __version__
from jqd.client.environ import checked_urls
from jqd.client.errors import (
    ClientClosed,
    Conflict,
    Forbidden,
    Invalid,
    ItemError,
    JqdClientError,
    NotFound,
    TimedOut,
    TooLarge,
    Unavailable,
    Unreachable,
    WrongToken,
    more_doubtful,
    refused_after,
    took_nothing,
)
from jqd.client.trust import no_certificate, trouble_of_tls, trusted_at
from jqd.domain.backoff import Backoff
from jqd.domain.errors import Closed, IdsUnknown
from jqd.domain.media import MSGPACK, language_of

TRIES_MAX = 4  # of a request that may be repeated: with the back-off below, a daemon's restart of about a second
UNKNOWN = 401  # to this daemon the token lets nobody in
BACKOFF = Backoff(first_s=0.1, factor=3.0, cap_s=2.0)
CONNECTIONS_MAX = 32  # of one client, but for waits: they have one each, and keep no push from being sent
ERRORS_SHOWN_MAX = 5  # in a message; all of them stand in `errors`
DETAIL_CHARS_MAX = 300  # of an answer quoted in a message
PATH_CHARS_MAX = 64  # of a path quoted in one
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError)
USERS = frozenset({"argument", "result", "error"})  # values that pushers and workers made


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Any


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
        transport: httpx2.BaseTransport | None = None,
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
        self._tenant: dict[str, str] = {}  # of a view: what each of its requests says beside
        self._transport = transport
        # By process: a child of a fork must not write to its parent's connections, nor close them. So it leaves them
        # alone, and makes its own. Nothing is locked here: another thread may hold any lock at the moment of a fork.
        self._by_process: dict[tuple[int, bool], httpx2.Client] = {}
        self._connections()

    def close(self) -> None:
        (self._by_process.get((os.getpid(), True)) or self._connections()).close()
        self._connections().close()

    def _connections(self, *, waits: bool = False) -> httpx2.Client:
        if waits and (others := self._connections()).is_closed:
            return others  # which says so
        process, most = (os.getpid(), waits), None if waits else CONNECTIONS_MAX
        mine = self._by_process.get(process)
        if mine is None:
            made = httpx2.Client(
                headers=self._headers,
                trust_env=False,  # a proxy for the web is not meant for a queue next door
                transport=self._transport,
                verify=trusted_at(self.urls),
                limits=httpx2.Limits(max_connections=most, max_keepalive_connections=CONNECTIONS_MAX),
            )
            mine = self._by_process.setdefault(process, made)  # another thread may have been sooner
        return mine

    @contextmanager
    def _open(self, path: str, *, waits: bool = False) -> Iterator[httpx2.Client]:
        """Give the connections, for a request of that path. Raises Invalid for names and ids that no URL carries;
        ClientClosed where another thread closed them, before or meanwhile."""
        connections = self._connections(waits=waits)
        try:
            yield connections
        except (httpx2.InvalidURL, UnicodeEncodeError) as error:
            message = f"{path[:PATH_CHARS_MAX]} cannot be asked for: {error}; nothing was sent"
            raise Invalid(message, status=414 if isinstance(error, httpx2.InvalidURL) else 400) from error
        except (RuntimeError, ValueError) as error:  # of httpx2, and of a socket that is gone
            if not connections.is_closed:
                raise
            raise ClientClosed(f"the client of {self.url} was closed; make another") from error

    @property
    def url(self) -> str:
        """Return the URL of the daemon that is asked first."""
        return self.urls[self._at]

    def speaking_for(self, tenant: str) -> "Http":
        """Return a view that speaks for one tenant, by the same connections; it needs no close."""
        _expect_header("name of the tenant", tenant)
        view = copy(self)
        view._tenant = {"jqd-tenant": tenant}
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
        headers = {**self._tenant, **({"content-type": MSGPACK} if body is not None else {})}
        daemons = len(self.urls)
        doubt: JqdClientError | None = None
        known: Unavailable | None = None
        for tried in range(1, TRIES_MAX * daemons + 1):
            at, others = self._at, tried < daemons  # whether there are daemons that were not asked yet
            url = self.urls[at]
            try:
                with self._open(path, waits=wait_s > 0) as connections:
                    response = connections.request(
                        method,
                        url + path,
                        params=params or None,  # an empty map has the URL parsed once more
                        content=body,
                        headers=headers,
                        timeout=httpx2.Timeout(self._timeout_s + wait_s, connect=self._timeout_s),
                    )
            except httpx2.TransportError as error:
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
                decoded = self._decode(url, response)
                if response.is_success or response.status_code in accept:
                    return Answer(response.status_code, decoded)
                refused = error_of(response.status_code, decoded, response.headers.get("retry-after"))
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
        url = self.url
        how: Any = {"headers": {**self._tenant, **headers}, "timeout": httpx2.Timeout(self._timeout_s, read=quiet_s)}
        try:
            with self._open(path, waits=True) as opened, opened.stream("GET", url + path, **how) as response:
                if response.status_code == 200:
                    yield from response.iter_lines()
                    return
                response.read()
                raise error_of(response.status_code, self._decode(url, response), response.headers.get("retry-after"))
        except httpx2.TransportError as error:
            raise self._trouble("GET", url, error) from error

    def leave(self, tried: int) -> None:
        """Ask another daemon from now on, after a pause that grows with the tries."""
        self._leave(self._at)
        self._sleep(BACKOFF.delay_s(tried, self._source))

    def _leave(self, at: int) -> None:
        """Use the next daemon from now on, unless another thread has moved on already."""
        if self._at == at:
            self._at = (at + 1) % len(self.urls)

    def _decode(self, url: str, response: httpx2.Response) -> Any:
        if not response.content:
            return None
        kind = response.headers.get("content-type", "")
        try:
            if language_of(kind) == "msgpack":
                return _unpacked(response.content)
            if language_of(kind) == "json":
                return msgspec.json.decode(response.content)
        except UNREADABLE as error:
            status = response.status_code
            raise JqdClientError(f"the answer of {url} cannot be decoded: {error}", status=status) from error
        if response.is_success:
            message = f"{url} answered with {kind or 'untyped content'} instead of MessagePack; is it a jqd daemon?"
            raise JqdClientError(message, status=response.status_code)
        return response.text[:DETAIL_CHARS_MAX]

    def _trouble(self, method: str, url: str, error: httpx2.TransportError) -> JqdClientError:
        if isinstance(error, httpx2.ReadTimeout | httpx2.WriteTimeout):
            taken = "" if method == "GET" else "; it may have taken the request"
            return TimedOut(f"{url} did not answer within {self._timeout_s:g} s{taken}")
        if isinstance(error, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError):
            return JqdClientError(f"cannot talk to {url}: {error}; a URL like http://127.0.0.1:7420 is needed")
        if (refusal := _by_tls(url, error)) is not None:
            return Unreachable(f"{refusal}; nothing was sent", sent=False)
        why = str(error) or type(error).__name__
        if _was_sent(error):
            message = f"the connection to {url} broke before the answer came ({why}); the request may have arrived"
            return Unreachable(message, sent=True)
        message = f"no daemon answers at {url} ({why}); nothing was sent. Start one with `jqd serve`, or check the URL"
        return Unreachable(message, sent=False)


def _unpacked(packed: bytes) -> Any:
    """Decode a body. A user's value that Python cannot hold (text that is not UTF-8, a map whose keys are maps) stays
    `msgspec.Raw`.

    Whoever looks how a job stands need not be able to read what somebody else pushed with it.
    """
    try:
        return msgspec.msgpack.decode(packed)
    except UNREADABLE:
        fields = msgspec.msgpack.decode(packed, type=dict[str, msgspec.Raw])
        return {name: _value(value, may_stay=name in USERS) for name, value in fields.items()}


def _value(packed: msgspec.Raw, *, may_stay: bool) -> Any:
    try:
        return msgspec.msgpack.decode(packed)
    except UNREADABLE:
        if may_stay:
            return packed
        raise


def _expect_header(what: str, value: str) -> None:
    """Raises WrongToken, without the value: it is a secret."""
    if not value.isascii() or not value.isprintable():
        raise WrongToken(f"the {what} has characters that no HTTP header carries; is it one line, as it was given out?")


def _by_tls(url: str, error: httpx2.TransportError) -> str | None:
    if not url.startswith("https:"):
        return None
    if isinstance(error, httpx2.ConnectError):
        return trouble_of_tls(url, error)
    # In TLS 1.3 a client may send before it is told that its certificate is missing; nothing of that is read.
    return no_certificate(url, error) if isinstance(error, httpx2.ReadError | httpx2.WriteError) else None


def _was_sent(error: httpx2.TransportError) -> bool:
    unsent = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
    return not isinstance(error, unsent)


def error_of(status: int, body: Any, retry_after: str | None) -> JqdClientError:
    fields = body if isinstance(body, dict) else {}
    text = body if isinstance(body, str) else ""
    detail = str(fields.get("detail") or fields.get("title") or text or "no reason was given")
    message = f"{detail} ({status})"
    errors = item_errors(fields.get("errors"))
    # A detail that names the field already needs no repetition.
    if more := [f"{error.pointer} {error.detail}".strip() for error in errors if error.detail not in detail]:
        message += ": " + "; ".join(more[:ERRORS_SHOWN_MAX])
    if status in (400, 414, 415, 422):
        return Invalid(message, status=status, errors=errors)
    if status in (429, 503, 507):
        kind = {"ids_unknown": fields.get("type") == IdsUnknown.problem, "closed": fields.get("type") == Closed.problem}
        return Unavailable(message, status=status, retry_after=_after(retry_after), **kind)
    kinds = {401: Forbidden, 403: Forbidden, 404: NotFound, 409: Conflict, 413: TooLarge}
    return kinds.get(status, JqdClientError)(message, status=status)


def item_errors(value: Any) -> list[ItemError]:
    """Return `errors` of an answer; an entry that is not understood is kept as text."""
    if not isinstance(value, list):
        return []
    errors = []
    for item in value:
        try:
            errors.append(msgspec.convert(item, ItemError))
        except msgspec.ValidationError:
            index = item.get("index") if isinstance(item, dict) else None
            errors.append(ItemError(detail=str(item), index=index if isinstance(index, int) else None))
    return errors


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


def odd(what: str, answer: Answer) -> JqdClientError:
    """Return the error for a 2xx that no jqd daemon would give."""
    return JqdClientError(f"{what} was answered with something else; is it a jqd daemon?", status=answer.status)


def _after(header: str | None) -> float | None:
    """Return the seconds of a Retry-After header; a date is ignored, as a wall clock may be wrong."""
    try:
        seconds = float(header) if header is not None else None
    except ValueError:
        return None
    return seconds if seconds is not None and 0 <= seconds < float("inf") else None
