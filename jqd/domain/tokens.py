"""Tokens: secrets that identify callers. Each is a setting that has only the secret's hash.

    jqd_0123456789abcdef_AbC…          what a caller sends: the token's id, and the secret
         16 digits        43 characters

A revoked token stays a setting for ever: if it were dropped, a daemon that was away for long would bring it back. An
expired token is dropped: if it comes back, it is expired still.

A token may be *derived* from another one, which is called the token *above* it. It has the same rights or fewer, for a
shorter time, and is valid only while all tokens above it are valid and known. Its setting is named after a *slot* of
the topmost one: so it replaces an earlier derived token, and cannot be brought back.
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
NOBODYS = bytes(32)  # compared with if a token is unknown, so that this takes as long

OVER_S = 3_600.0  # an expired token is kept so long, as clocks differ
DEPTH_MAX = 3  # derived tokens in a row: each call checks all above its own
SWEPT_MIN = 1_000  # expired tokens are dropped only if more than so many are known


class Role(enum.StrEnum):
    """What a token may do."""

    PUSH = "push"
    """Push jobs; look at a job by its id, take its result, ask why it waits, cancel it."""
    WORKER = "worker"
    """All that `push` may, as jobs may push jobs; and register workers, take jobs and report them."""
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
"""Role → roles whose calls it may make."""


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of the setting `token`."""

    hash: bytes
    """SHA-256 of the secret; 256 random bits need no slow hash."""
    role: Role
    tenant: str = ""
    scopes: tuple[str, ...] = ()
    """Jobtypes that it is for, each in full or as a prefix with a * at its end; none: all."""
    note: str = ""
    """What it is for, as its maker wrote."""
    made_at_ms: int = 0
    made_by: str = ""
    """Id of the token with which it was made."""
    until_ms: int = 0
    """When it expires (Unix ms); 0: never."""
    revoked_at_ms: int = 0
    """When it was revoked; 0: it is not."""
    parent: str = ""
    """Id of the token that it was derived from."""
    token_id: str = ""
    """Its id, if its setting is named after a slot."""
    slot: str = ""
    """The name of its setting, if that is not its id."""
    kept_ms: int = 0
    """When the last of the tokens expires that had this slot before."""

    def __repr__(self) -> str:
        """Return a repr without the hash."""
        return f"Token({self.role}, tenant={self.tenant!r})"

    def holds(self, now_ms: int) -> bool:
        """Return whether the token is neither revoked nor expired. Those above it are not checked."""
        return not self.revoked_at_ms and (not self.until_ms or now_ms < self.until_ms)

    def is_over(self, now_ms: int) -> bool:
        """Return whether the token, and all that had its slot before, expired so long ago that no clock takes one for
        valid."""
        return bool(self.until_ms) and now_ms - self.last_ms > OVER_S * 1000

    @property
    def last_ms(self) -> int:
        """When the token and all that had its slot before have expired."""
        return max(self.until_ms, self.kept_ms)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Token)


def over(setting: Setting, now_ms: int) -> bool:
    """Return whether a setting is a token that expired long ago."""
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
        """Slot → id of the token that has it, or had it last."""
        self._sweep_at = SWEPT_MIN
        self._clock = clock
        settings.read(TOKEN, _read)
        settings.watch(TOKEN, self._learn)

    def __iter__(self) -> Iterator[tuple[str, Token]]:
        """Yield (id, token) of each valid token."""
        now_ms = self._clock.wall_ms()
        return ((token_id, token) for token_id, token in [*self._known.items()] if self._holds(token, now_ms))

    def get(self, token_id: str) -> Token | None:
        """Return a token, revoked or not."""
        return self._known.get(token_id)

    def ended(self, token_id: str) -> bool:
        """Return whether a token is invalid (any more). False for a text that is no token's id."""
        if not is_token_id(token_id):
            return False
        token = self._known.get(token_id)
        return token is None or not self._holds(token, self._clock.wall_ms())

    def line(self, token_id: str) -> Iterator[str]:
        """Yield a token's id, and the ids of all tokens above it, the nearest first."""
        for _ in range(DEPTH_MAX + 1):
            yield token_id
            token = self._known.get(token_id)
            if token is None or not token.parent:
                return
            token_id = token.parent

    def in_slot(self, slot: str) -> Token | None:
        """Return the token that has a slot, or had it last; None if there was none, or it expired long ago."""
        return self._known.get(self._in_slot.get(slot, ""))

    def of(self, text: str) -> tuple[str, Token] | None:
        """Return the id and the token that a caller's text is for; None if it is no valid token. Takes the same time
        for all texts of a token's form."""
        found = FORM.fullmatch(text)
        if found is None:
            return None
        token = self._known.get(found[1])
        same = hmac.compare_digest(hash_of(found[2]), token.hash if token is not None else NOBODYS)
        is_valid = token is not None and self._holds(token, self._clock.wall_ms())
        return (found[1], token) if token is not None and same and is_valid else None

    def _holds(self, token: Token, now_ms: int) -> bool:
        """Return whether a token and all tokens above it are valid."""
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
    """Return the hash of a secret that is stored."""
    return hashlib.sha256(secret.encode()).digest()


def same_secret(text: str, known: str) -> bool:
    """Return whether two secrets are equal, in constant time. False if `known` is empty."""
    return bool(known) and hmac.compare_digest(hash_of(text), hash_of(known))


def draw() -> tuple[str, str, str]:
    """Make a new token: return its id, its secret, and the text that callers send."""
    token_id, secret = secrets.token_hex(ID_BYTES), secrets.token_urlsafe(SECRET_BYTES)
    return token_id, secret, f"jqd_{token_id}_{secret}"
