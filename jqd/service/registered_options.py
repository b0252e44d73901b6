"""Default options of jobtypes, from registrations and handlers: the latest change of each holds."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET

from jqd.domain.job_spec import NO_OPTIONS, JobOptions, JobSpec, TypeOptions
from jqd.domain.settings import NIL, Setting, SettingTable
from jqd.domain.tenant import annotate, tenant_of

KIND = "options"
# Options that no registration names stay so long: a push during a deploy, or over a weekend, gets them.
KEPT_S = 7 * 86_400.0
UNNAMED_MAX = 10_000  # and no more than so many of them of a tenant, those said last: programs that make up names
# leave some with each. What is server_only is not counted: it opens no earlier


class Registered(msgspec.Struct, frozen=True):
    """The body of the setting `options`."""

    options: TypeOptions
    by: str
    """The worker's id, or the handler's name and version."""


_NONE = JobOptions()
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Registered)


class RegisteredOptions:
    """Jobtype → the options registered last."""

    def __init__(self, settings: SettingTable) -> None:
        self.known: dict[str, Registered] = {}
        self.says_any = False
        """Whether anything counts for jobs whose pusher left it out."""
        self._usual: dict[str, Any] = {}
        self.reserved: set[str] = set()
        """The jobtypes that are `server_only`."""
        self._given: dict[str, JobOptions] = {}  # of those the ones that count for jobs
        self._unnamed_since_s: dict[str, float] = {}
        self._settings = settings
        settings.read(KIND, _read)
        settings.watch(KIND, self._ruled)

    def take_usual(self, usual: JobOptions) -> None:
        """Use these defaults where nothing is registered."""
        self._usual = dict(usual.given())
        self.says_any = bool(self._usual or self._given)

    def others(self, declared: Mapping[str, TypeOptions]) -> list[str]:
        """Return the jobtypes for which other options than these hold."""
        known = self.known
        return [
            name
            for name, options in declared.items()
            if options != (known[name].options if name in known else NO_OPTIONS)
        ]

    def bodies(self, declared: Mapping[str, TypeOptions], by: str) -> dict[tuple[str, str], bytes]:
        """Return the settings that register these options: only those that change."""
        return {
            (KIND, name): NIL if declared[name] == NO_OPTIONS else _encoder.encode(Registered(declared[name], by))
            for name in self.others(declared)
        }

    def of_handler(self, name: str, declared: TypeOptions | None, by: str) -> dict[tuple[str, str], bytes]:
        """Return the same for a handler, which may have no options; None: it is deleted, and takes its own back."""
        known = self.known.get(name)
        own = known is not None and known.by.rpartition("@")[0] == name
        if declared is None or declared == NO_OPTIONS:
            return self.bodies({name: NO_OPTIONS}, by) if own else {}
        return self.bodies({name: declared}, by)

    def unneeded(self, named: Collection[str], now_s: float) -> dict[tuple[str, str], bytes]:
        """Return the settings that delete options of jobtypes which nothing in `named` has named for long.

        Call it now and then: the time counts from when it was noticed here.
        """
        before = self._unnamed_since_s
        unnamed = [
            setting.name for setting in self._settings.all(KIND) if not setting.is_deleted and setting.name not in named
        ]
        since_s = self._unnamed_since_s = {name: before.get(name, now_s) for name in unnamed}
        # Who makes up names must not take from others' jobs that they are for the server alone.
        plain = [name for name in unnamed if name not in self.reserved]
        left, over = Counter(map(tenant_of, plain)), set[str]()
        for name in sorted(plain, key=self._revision):
            if left[tenant_of(name)] > UNNAMED_MAX:
                left[tenant_of(name)] -= 1
                over.add(name)
        gone = sorted({*over, *(name for name, at_s in since_s.items() if now_s - at_s > KEPT_S)})
        return {(KIND, name): NIL for name in gone}

    def _revision(self, name: str) -> int:
        setting = self._settings.get(KIND, name)
        return setting.revision if setting else 0

    def says(self, jobtype: str, field: str) -> bool:
        """Return whether a registration set that option of a jobtype."""
        registered = self.known.get(jobtype)
        return registered is not None and getattr(registered.options, field) is not UNSET

    def left_out(self, jobs: Sequence[JobSpec], tenant: str = "") -> list[tuple[JobOptions, list[int]]]:
        """Return the default options for jobs whose pusher left them out, with the places of those jobs.

        Costs nothing while nothing is registered, and little for other jobtypes.
        """
        known, usual = self._given, self._usual
        if tenant and known:
            names = {job.name for job in jobs}
            known = {name: one for name in names if (one := self._given.get(annotate(tenant, name))) is not None}
        if not usual and (not known or not any(job.name in known for job in jobs)):
            return []
        found: dict[JobOptions, list[int]] = {}
        silent: dict[str, tuple[JobOptions, attrgetter[Any], object, list[int]]] = {}  # what most leave out
        for index, declared in enumerate(jobs):
            if declared.name not in known and not usual:
                continue
            if declared.name not in silent:
                options = JobOptions(**usual | dict(known.get(declared.name, NO_OPTIONS).given()))
                given = attrgetter(*(field for field, _ in options.given()))
                silent[declared.name] = options, given, given(_NONE), found.setdefault(options, [])
            options, given, none, places = silent[declared.name]
            if given(declared) == none:
                places.append(index)
            elif any((left := options.without(declared)).given()):
                found.setdefault(left, []).append(index)
        return [(options, places) for options, places in found.items() if places]

    def _ruled(self, setting: Setting) -> None:
        self.known.pop(setting.name, None)
        self._given.pop(setting.name, None)
        self.reserved.discard(setting.name)
        if not setting.is_deleted:
            read = self.known[setting.name] = _read(setting)
            if any((given := read.options.of_jobs).given()):
                self._given[setting.name] = given
            if read.options.server_only:
                self.reserved.add(setting.name)
        self.says_any = bool(self._usual or self._given)


def _read(setting: Setting) -> Registered:
    return _decoder.decode(setting.body)
