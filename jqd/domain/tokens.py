"""Tokens: secrets that identify callers. Each is a setting that has only the secret's hash.

    jqd_0123456789abcdef_AbC…          what a caller sends: the token's id, and the secret
         16 digits        43 characters

A revoked token stays a setting for ever. If it were dropped, a daemon that was away for long would bring back the valid
token. An expired token is dropped: if a daemon brings it back, it is still expired.

A token may be *derived* from another one, which is called the token *above* it. It has the same rights or fewer, for a
shorter time, and is valid only while all tokens above it are valid and known. Its setting does not have the token's id
as its name, but that of a *slot*, one of a few numbered names of the topmost token. So it replaces the earlier token in
the same slot, which cannot be brought back.
"""

import enum
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterator

import msgspec

from jqd.domain.clock import Clock
from jqd.domain.settings import Setting, SettingTable

TOKEN = "token"  # noqa: S105 - a kind of setting
NOTE_LENGTH_MAX = 200  # characters
ID_BYTES, SECRET_BYTES = 8, 32
ID = re.compile(rf"[0-9a-f]{{{2 * ID_BYTES}}}")
FORM = re.compile(rf"jqd_([0-9a-f]{{{2 * ID_BYTES}}})_([A-Za-z0-9_-]{{43}})")
NOBODYS = bytes(32)  # a text is compared with it if its token is unknown, so that this takes equally long

OVER_S = 3_600.0  # an expired token is kept so long, as clocks differ
DEPTH_MAX = 3  # length of a chain of derived tokens: each call checks all tokens above its own
SWEPT_MIN = 1_000  # expired tokens are dropped only if more than so many are known


class Role(enum.StrEnum):
    """What a token may do."""

    PUSH = "push"
    """Push jobs; look at a job by its id, take its result, ask why it waits, cancel it."""
    WORKER = "worker"
    """All that `push` may, because jobs may push jobs. Also register workers, take jobs and report their outcomes."""
    VIEWER = "viewer"
    """Look at everything, and change nothing."""
    OPERATOR = "operator"
    """All that the others may, and everything else with jobs, jobtypes, handlers, schedules and workers."""
    MASTER = "master"
    """All that an operator may, and make and revoke tokens."""


MAY = {
    Role.PUSH: frozenset({Role.PUSH}),
    Role.WORKER: frozenset({Role.PUSH, Role.WORKER}),
    Role.VIEWER: frozenset({Role.VIEWER}),
    Role.OPERATOR: frozenset({Role.PUSH, Role.WORKER, Role.VIEWER, Role.OPERATOR}),
    Role.MASTER: frozenset(Role),
}
"""Role → the roles whose calls it may make."""


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """What jqd knows of a token: the body of a setting of the kind `token`."""

    hash: bytes
    """SHA-256 of the secret; 256 random bits need no slow hash."""
    role: Role
    tenant: str = ""
    scopes: tuple[str, ...] = ()
    """Jobtypes that the token is for. Each is a full name, or a prefix with a * at its end; none: all jobtypes."""
    note: str = ""
    """What the token is for, in its maker's words."""
    made_at_ms: int = 0
    made_by: str = ""
    """Id of the token whose holder made this one."""
    until_ms: int = 0
    """When the token expires (Unix ms); 0: never."""
    revoked_at_ms: int = 0
    """When the token was revoked (Unix ms); 0: it was not."""
    parent: str = ""
    """Id of the token from which this one was derived."""
    token_id: str = ""
    """The token's id, if its setting has the name of a slot."""
    slot: str = ""
    """The slot, if that is the name of the token's setting; else empty."""
    kept_ms: int = 0
    """When the last of the earlier tokens in the same slot expires (Unix ms)."""

    def __repr__(self) -> str:
        """Return a repr without the hash."""
        return f"Token({self.role}, tenant={self.tenant!r})"

    def holds(self, now_ms: int) -> bool:
        """Return whether the token is neither revoked nor expired. The tokens from which it was derived are not
        checked."""
        return not self.revoked_at_ms and (not self.until_ms or now_ms < self.until_ms)

    def is_over(self, now_ms: int) -> bool:
        """Return whether the token expired so long ago that no daemon's clock takes it for valid. All earlier tokens in
        its slot (the name of its setting) must have expired so long ago, too."""
        return bool(self.until_ms) and now_ms - self.last_ms > OVER_S * 1000

    @property
    def last_ms(self) -> int:
        """Return by when the token, and all earlier tokens in its slot (the name of its setting), have expired (Unix
        ms)."""
        return max(self.until_ms, self.kept_ms)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Token)


def over(setting: Setting, now_ms: int) -> bool:
    """Return whether a setting is a token that expired so long ago that no daemon's clock takes it for valid."""
    if setting.kind != TOKEN or setting.is_deleted:
        return False
    return _read(setting).is_over(now_ms)


def _read(setting: Setting) -> Token:
    return _decoder.decode(setting.body)


def is_token_id(text: str) -> bool:
    """Return whether a text has the form of a token's id."""
    return ID.fullmatch(text) is not None


class Tokens:
    """The tokens that this daemon knows."""

    def __init__(self, settings: SettingTable, clock: Clock) -> None:
        self._known: dict[str, Token] = {}
        self._in_slot: dict[str, str] = {}
        """Slot → id of the latest token in it, which may have expired."""
        self._sweep_at = SWEPT_MIN
        self._clock = clock
        settings.read(TOKEN, _read)
        settings.watch(TOKEN, self._learn)

    def __iter__(self) -> Iterator[tuple[str, Token]]:
        """Yield (id, token) of each valid token."""
        now_ms = self._clock.wall_ms()
        return ((token_id, token) for token_id, token in [*self._known.items()] if self._holds(token, now_ms))

    def get(self, token_id: str) -> Token | None:
        """Return a token, even if it was revoked; None if it is unknown."""
        return self._known.get(token_id)

    def ended(self, token_id: str) -> bool:
        """Return whether a token is invalid: it, or a token from which it was derived, is unknown, revoked or expired.
        False for a text that does not have the form of a token id."""
        if not is_token_id(token_id):
            return False
        token = self._known.get(token_id)
        return token is None or not self._holds(token, self._clock.wall_ms())

    def line(self, token_id: str) -> Iterator[str]:
        """Yield a token's id, and then the ids of the tokens from which it was derived, nearest first."""
        for _ in range(DEPTH_MAX + 1):
            yield token_id
            token = self._known.get(token_id)
            if token is None or not token.parent:
                return
            token_id = token.parent

    def in_slot(self, slot: str) -> Token | None:
        """Return the latest token in a slot (the name of a derived token's setting). It may have expired. None if there
        was none, or it expired long ago."""
        return self._known.get(self._in_slot.get(slot, ""))

    def of(self, text: str) -> tuple[str, Token] | None:
        """Check the text that a caller sent as its token. Returns the token's id and the token; None if it is not
        valid. Takes the same time for all texts that have the form of a token."""
        found = FORM.fullmatch(text)
        if found is None:
            return None
        token = self._known.get(found[1])
        same = hmac.compare_digest(hash_of(found[2]), token.hash if token is not None else NOBODYS)
        is_valid = token is not None and self._holds(token, self._clock.wall_ms())
        return (found[1], token) if token is not None and same and is_valid else None

    def _holds(self, token: Token, now_ms: int) -> bool:
        """Return whether a token and all tokens from which it was derived are known, and neither revoked nor
        expired."""
        for _ in range(DEPTH_MAX + 1):
            if not token.holds(now_ms) or not token.parent:
                return token.holds(now_ms)
            if (above := self._known.get(token.parent)) is None:
                return False
            token = above
        return False

    def _learn(self, setting: Setting) -> None:
        self._known.pop(self._in_slot.pop(setting.name, setting.name), None)
        if setting.is_deleted:
            return
        if len(self._known) >= self._sweep_at:  # watchers are not told of settings that were dropped
            now_ms = self._clock.wall_ms()
            self._known = {token_id: each for token_id, each in self._known.items() if not each.is_over(now_ms)}
            self._in_slot = {slot: token_id for slot, token_id in self._in_slot.items() if token_id in self._known}
            self._sweep_at = max(SWEPT_MIN, 2 * len(self._known))
        token = _read(setting)
        if token.slot:
            self._in_slot[setting.name] = token.token_id
        self._known[token.token_id or setting.name] = token


def body_of(token: Token) -> bytes:
    return _encoder.encode(token)


def hash_of(secret: str) -> bytes:
    """Return the hash of a secret, which is stored instead of the secret."""
    return hashlib.sha256(secret.encode()).digest()


def same_secret(text: str, known: str) -> bool:
    """Compare two secrets in constant time. False if `known` is empty."""
    return bool(known) and hmac.compare_digest(hash_of(text), hash_of(known))


def draw() -> tuple[str, str, str]:
    """Make a new token; return its id, its secret, and the text that callers send."""
    token_id, secret = secrets.token_hex(ID_BYTES), secrets.token_urlsafe(SECRET_BYTES)
    return token_id, secret, f"jqd_{token_id}_{secret}"
