"""The store's methods on settings and on workers' signs of life."""

from collections.abc import Sequence

import msgspec

from jqd.domain.record import Lane
from jqd.domain.settings import Setting, decode_setting, encode_setting
from jqd.store.keys import lane_field
from jqd.store.methods import ScriptMethods, bound
from jqd.store.types import Followed

FOLLOWED_MAX = 100  # settings in one answer: some 30 kB of common ones
FOLLOWED_BYTES_MAX = 1 << 20  # of settings in one answer: the call then takes some ms, as any other


class SettingMethods(ScriptMethods):
    async def apply_settings(self, journal_id: str, start: int, end: int, settings: Sequence[Setting]) -> int | None:
        """Add settings; positions as in `apply_jobs`. For each kind and name the highest revision stays. Returns how
        many are new."""
        bound(settings)
        flat = (
            value for setting in settings for value in (_member(setting), setting.revision, encode_setting(setting))
        )
        return await self._move("apply_settings", lane_field(journal_id, Lane.RULES), start, end, *flat)

    async def follow_settings(
        self, rules_at: int, signs_at: int, alive: Sequence[str] = (), fresh: Sequence[Setting] = ()
    ) -> Followed:
        """Return the settings and the workers' signs of life that the store got since an earlier call.

        `rules_at`, `signs_at`: numbers in that call's answer; 0 at first. They are valid in one life of the store:
        raises StoreChanged. `alive`: ids of workers that gave the caller a sign of life; it is saved. `fresh`: settings
        to save that are in no journal. At most CALL_JOBS_MAX of each."""
        bound(alive)
        bound(fresh)
        flat = (value for setting in fresh for value in (_member(setting), setting.revision, encode_setting(setting)))
        answer = await self._caller.call(
            "follow_settings",
            self._caller.identity,
            rules_at,
            signs_at,
            FOLLOWED_MAX,
            FOLLOWED_BYTES_MAX,
            len(fresh),
            *flat,
            *alive,
        )
        now_rules_at, packed, now_signs_at, signs, ages, unknown, more, now_ms, settled = self._list("rules", answer)
        rows = self._list("rules", packed)
        ages_ms = self._wholes("alive", ages)
        return Followed(
            self._whole("ruled", now_rules_at),
            [setting for row in rows if (setting := self._setting(row)) is not None],
            self._whole("alive", now_signs_at),
            dict(zip(self._texts("alive", signs), ages_ms, strict=True)),
            self._texts("alive", unknown),
            self._whole("rules", more) == 1,
            self._whole("rules", now_ms),
            self._whole("life", settled) == 1,
        )

    async def forget_settings(self, signs_at: int, settings: Sequence[Setting]) -> list[Setting]:
        """Delete settings. A setting stays if the store has another version of it, or if its worker gave a sign of life
        after number `signs_at`. Returns the settings that stay."""
        bound(settings)
        workers = (setting.name if setting.kind == "worker" else "" for setting in settings)
        pairs = zip(settings, workers, strict=True)
        flat = (value for setting, worker in pairs for value in (_member(setting), setting.revision, worker))
        answer = await self._caller.call("forget_settings", signs_at, *flat)
        return [settings[at] for at in self._wholes("rules", answer)]

    def _setting(self, row: object) -> Setting | None:
        """Decode a setting; None if it cannot be read, as one such row must not hide all others."""
        try:
            return decode_setting(row if isinstance(row, bytes) else b"")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._log.error("store.rule_unreadable", key=self._keys["rules"], error=str(error))
            return None


def _member(setting: Setting) -> str:
    return f"{setting.kind}\0{setting.name}"
