"""The store's methods on rules, and on the signs of life of workers (docs/build/STORE.md)."""

from collections.abc import Sequence

import msgspec

from jqd.domain.log import get_logger
from jqd.domain.record import Lane
from jqd.domain.settings import Setting, decode_setting, encode_setting
from jqd.store import codec
from jqd.store.jobs import ScriptCaller, bound
from jqd.store.keys import Keys, lane_field
from jqd.store.types import Followed

FOLLOWED_MAX = 100  # rules told in one answer: some 30 kB of common ones
FOLLOWED_BYTES_MAX = 1 << 20  # and of larger ones so much: the script and its answer take some ms, as any other's


class SettingMethods:
    """What all daemons are to know: a part of `Store`."""

    def __init__(self, keys: Keys, caller: ScriptCaller) -> None:
        self._keys = keys
        self._caller = caller
        self._log = get_logger("store")

    async def apply_settings(self, journal_id: str, start: int, end: int, settings: Sequence[Setting]) -> None:
        """Learn of rules, positions as in `apply_jobs`. Of each kind and name the highest revision stays."""
        bound(settings)
        flat = (
            value for setting in settings for value in (_member(setting), setting.revision, encode_setting(setting))
        )
        await self._caller.call_behind("apply_settings", lane_field(journal_id, Lane.RULES), start, end, *flat)

    async def follow_settings(
        self, rules_at: int, signs_at: int, alive: Sequence[str] = (), said: Sequence[Setting] = ()
    ) -> Followed:
        """What is new since the numbers of an earlier answer, 0 at first: rules, and workers that were heard of.

        `alive`: ids of at most CALL_JOBS_MAX workers that the caller heard of; `said`: rules that stand in no journal,
        to be said again to a store that forgot. Numbers of one life are only good in that life: raises StoreChanged in
        another than the one we looked at.
        """
        bound(alive)
        bound(said)
        flat = (value for setting in said for value in (_member(setting), setting.revision, encode_setting(setting)))
        answer = await self._caller.call(
            "follow_settings",
            self._caller.identity,
            rules_at,
            signs_at,
            FOLLOWED_MAX,
            FOLLOWED_BYTES_MAX,
            len(said),
            *flat,
            *alive,
        )
        now_rules_at, packed, now_signs_at, signs, ages, unknown, more, now_ms = codec.list_of(
            self._keys, "rules", answer
        )
        rows = codec.list_of(self._keys, "rules", packed)
        ages_ms = [codec.whole(self._keys, "alive", age) for age in codec.list_of(self._keys, "alive", ages)]
        return Followed(
            codec.whole(self._keys, "ruled", now_rules_at),
            [setting for row in rows if (setting := self._setting(row)) is not None],
            codec.whole(self._keys, "alive", now_signs_at),
            dict(zip(self._ids(signs), ages_ms, strict=True)),
            self._ids(unknown),
            codec.whole(self._keys, "rules", more) == 1,
            codec.whole(self._keys, "rules", now_ms),
        )

    async def forget_settings(self, signs_at: int, settings: Sequence[Setting]) -> list[Setting]:
        """Drop rules that nobody needs any more. Those stay, and are returned, whose worker gave a sign since.

        Also those of which another one holds here; what the store does not have is gone.
        """
        bound(settings)
        workers = (setting.name if setting.kind == "worker" else "" for setting in settings)
        pairs = zip(settings, workers, strict=True)
        flat = (value for setting, worker in pairs for value in (_member(setting), setting.revision, worker))
        answer = await self._caller.call("forget_settings", signs_at, *flat)
        return [settings[codec.whole(self._keys, "rules", at)] for at in codec.list_of(self._keys, "rules", answer)]

    def _ids(self, answer: object) -> list[str]:
        return [codec.text(self._keys, "alive", one) for one in codec.list_of(self._keys, "alive", answer)]

    def _setting(self, row: object) -> Setting | None:
        """None for what no jqd wrote: one such row must not hide all others."""
        try:
            return decode_setting(row if isinstance(row, bytes) else b"")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._log.error("store.rule_unreadable", key=self._keys["rules"], error=str(error))
            return None


def _member(setting: Setting) -> str:
    return f"{setting.kind}\0{setting.name}"
