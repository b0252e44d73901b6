"""Keeps the logins in this process's memory. A browser's cookie has the id of a session, and no token.

A session has its own API token, valid for at most twelve hours. When there are too many sessions, one is ended: of the
role and tenant with the most sessions, the session unused for longest. So the logins of one tenant cannot push out
those of others.
"""

import hmac
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from functools import partial
from secrets import token_urlsafe
from typing import Any, NamedTuple

from jqd.domain.clock import Clock
from jqd.webui.api import Api
from jqd.webui.config import CHECK_S, SESSION_S, SESSIONS_MAX

MARKS_MAX = 100  # open forms of a session that may still be sent, some 100 bytes each


class Me(NamedTuple):
    """Tenant, role and scopes of a session's token, from `GET /v1/me`."""

    role: str
    tenant: str = ""
    scopes: tuple[str, ...] = ()
    all_tenants: bool = False
    token_id: str = ""

    @classmethod
    def of(cls, body: dict[str, Any]) -> "Me":
        scopes, sees_all = tuple(body.get("scopes") or ()), bool(body.get("all_tenants"))
        return cls(body["role"], body.get("tenant") or "", scopes, sees_all, body.get("token_id") or "")

    @property
    def identity(self) -> object:
        """Value that stands for the session's rights in cache keys. Sessions with equal identities see the same
        pages."""
        return self._replace(token_id="")


@dataclass
class Session:
    """A login; or, with `is_open`, the session that all visitors share because nobody has to log in."""

    api: Api
    me: Me
    is_open: bool = False
    """Whether nobody logged in: the rights are those of the UI's own token, or of no token."""
    ends_at_s: float = float("inf")
    """When the session expires, by the monotonic clock."""
    checked_at_s: float = 0.0
    """When the token was last checked, by the monotonic clock."""
    session_id: str = field(default_factory=token_urlsafe)
    form_token: str = field(default_factory=token_urlsafe)
    """Secret in every form of the session's pages. It shows that a form is not from another site."""
    _marks: deque[str] = field(default_factory=partial(deque[str], maxlen=MARKS_MAX))
    """Marks of forms that may still be sent, the oldest first; see `issue_mark`."""
    _done: deque[str] = field(default_factory=partial(deque[str], maxlen=MARKS_MAX))
    """URLs to which an act has redirected, and which the browser has not opened yet."""

    def issue_mark(self) -> str:
        """Return a new one-time mark (nonce) for a form that must not be carried out twice. The mark stays valid until
        it is used, or MARKS_MAX later marks were issued."""
        mark = token_urlsafe()
        self._marks.append(mark)
        return mark

    def strike_mark(self, mark: str) -> bool:
        """Use up a form's mark. Returns whether it was valid: issued by this session, and not used before."""
        if mark not in self._marks:
            return False
        self._marks.remove(mark)
        return True

    def restore_mark(self, mark: str) -> None:
        """Make the used mark of a form valid again, because the form was not carried out."""
        self._marks.append(mark)

    def note_done(self, url: str) -> None:
        """Remember that an act redirects to `url`, so that the page at `url` says once what was done."""
        self._done.append(url)

    def take_done(self, url: str) -> bool:
        """Return whether an act has redirected to `url`, and forget that: the next call returns False."""
        if url not in self._done:
            return False
        self._done.remove(url)
        return True

    def owns_form(self, token: str) -> bool:
        return hmac.compare_digest(self.form_token.encode(), token.encode())


class Sessions:
    """All sessions of this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_id: OrderedDict[str, Session] = OrderedDict()  # unused for longest first

    def __len__(self) -> int:
        return len(self._by_id)

    def begin(self, api: Api, me: Me) -> tuple[Session, list[Session]]:
        """Create a session. Returns it, and the sessions that were removed to make room: their tokens are still to be
        revoked."""
        now_s = self._clock.mono_s()
        session = Session(api, me, ends_at_s=now_s + SESSION_S, checked_at_s=now_s)
        self._by_id[session.session_id] = session
        surplus = [self._pop_surplus()] if len(self._by_id) > SESSIONS_MAX else []
        return session, surplus

    def _pop_surplus(self) -> Session:
        """Remove and return the session unused for longest, of the role and tenant that have the most sessions."""
        kinds = Counter(each.me[:2] for each in self._by_id.values())
        most = max(kinds, key=kinds.__getitem__)
        return self._by_id.pop(next(name for name, each in self._by_id.items() if each.me[:2] == most))

    def find(self, session_id: str) -> Session | None:
        """Return the session with this id, and count it as used; None if it does not exist or has expired."""
        session = self._by_id.get(session_id)
        if session is None:
            return None
        if session.ends_at_s <= self._clock.mono_s():
            self.end(session)
            return None
        self._by_id.move_to_end(session_id)
        return session

    def is_over(self, session: Session) -> bool:
        return not session.is_open and (
            session.session_id not in self._by_id or session.ends_at_s <= self._clock.mono_s()
        )

    def is_due(self, session: Session) -> bool:
        """Return whether CHECK_S has passed since the session's token was last checked. If so, the token counts as
        checked now: the caller must check it."""
        now_s = self._clock.mono_s()
        if now_s < session.checked_at_s + CHECK_S:
            return False
        session.checked_at_s = now_s
        return True

    def end(self, session: Session) -> None:
        if self._by_id.pop(session.session_id, None) is not None:
            session.api.close()

    def all(self) -> list[Session]:
        return list(self._by_id.values())

    def close(self) -> None:
        for session in self.all():
            self.end(session)
