"""Default options of jobtypes, set by worker registrations and handlers. The latest registration of a jobtype wins."""

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
# Options stay so long after no registration names their jobtype: pushes during a deploy or over a weekend get them.
KEPT_S = 7 * 86_400.0
UNNAMED_MAX = 10_000  # such jobtypes of one tenant, the latest: programs may make up a new name each time.
# `server_only` types are not counted, so that they stay reserved for KEPT_S


class Registered(msgspec.Struct, frozen=True):
    """The body of the setting `options`."""

    options: TypeOptions
    by: str
    """Who registered them: a worker's id, or a handler's name and version."""


_NONE = JobOptions()
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Registered)


class RegisteredOptions:
    """The registered options that this daemon knows, by jobtype, and the configured defaults."""

    def __init__(self, settings: SettingTable) -> None:
        self.known: dict[str, Registered] = {}
        self.has_defaults = False
        """Whether there are any default options for jobs, registered or configured (`set_configured`)."""
        self._configured: dict[str, Any] = {}
        self.reserved: set[str] = set()
        """The jobtypes that are `server_only`."""
        self._given: dict[str, JobOptions] = {}  # jobtype → those of its options that are defaults for jobs
        self._unnamed_since_s: dict[str, float] = {}  # jobtype → since when nothing names it, by the monotonic clock
        self._settings = settings
        settings.read(KIND, _read)
        settings.watch(KIND, self._setting_changed)

    def set_configured(self, configured: JobOptions) -> None:
        """Set the configured defaults, used for options that no registration sets."""
        self._configured = dict(configured.given())
        self.has_defaults = bool(self._configured or self._given)

    def changed(self, declared: Mapping[str, TypeOptions]) -> list[str]:
        """Return the jobtypes in `declared` whose registered options differ from the declared ones."""
        known = self.known
        return [
            name
            for name, options in declared.items()
            if options != (known[name].options if name in known else NO_OPTIONS)
        ]

    def bodies(self, declared: Mapping[str, TypeOptions], by: str) -> dict[tuple[str, str], bytes]:
        """Return the settings to save, so that the `declared` options are registered: (kind, jobtype) → body, for each
        jobtype whose options change.

        `by`: who registers them (`Registered.by`)."""
        return {
            (KIND, name): NIL if declared[name] == NO_OPTIONS else _encoder.encode(Registered(declared[name], by))
            for name in self.changed(declared)
        }

    def of_handler(self, name: str, declared: TypeOptions | None, by: str) -> dict[tuple[str, str], bytes]:
        """Return the settings to save, so that a handler's options are registered. If `declared` is None (the handler
        is deleted) or empty, they delete the options that this handler registered before."""
        known = self.known.get(name)
        own = known is not None and known.by.rpartition("@")[0] == name
        if declared is None or declared == NO_OPTIONS:
            return self.bodies({name: NO_OPTIONS}, by) if own else {}
        return self.bodies({name: declared}, by)

    def unneeded(self, named: Collection[str], now_s: float) -> dict[tuple[str, str], bytes]:
        """Return the settings that delete the options of jobtypes which no worker or handler has named for KEPT_S. If
        more than UNNAMED_MAX jobtypes of a tenant are unnamed now, the oldest options beyond that number are deleted,
        too.

        To be called now and then. `named`: jobtypes that are named now; a jobtype's time counts from the first call
        without it."""
        before = self._unnamed_since_s
        unnamed = [
            setting.name for setting in self._settings.all(KIND) if not setting.is_deleted and setting.name not in named
        ]
        since_s = self._unnamed_since_s = {name: before.get(name, now_s) for name in unnamed}
        # Without reserved types: made-up names must not push out an option that protects other jobs.
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

    def sets_option(self, jobtype: str, field: str) -> bool:
        """Return whether a registration set an option of a jobtype. `field`: the option's name."""
        registered = self.known.get(jobtype)
        return registered is not None and getattr(registered.options, field) is not UNSET

    def left_out(self, jobs: Sequence[JobSpec], tenant: str = "") -> list[tuple[JobOptions, list[int]]]:
        """Return the default options for jobs whose pushers left some out: pairs of options and the indexes of their
        jobs.

        Costs nothing while nothing is registered, and little for jobtypes without options.
        """
        known, configured = self._given, self._configured
        if tenant and known:
            names = {job.name for job in jobs}
            known = {name: own for name in names if (own := self._given.get(annotate(tenant, name))) is not None}
        if not configured and (not known or not any(job.name in known for job in jobs)):
            return []
        found: dict[JobOptions, list[int]] = {}
        # jobtype → its options, their getter, its result for a job that leaves all out, places of such jobs: most do
        silent: dict[str, tuple[JobOptions, attrgetter[Any], object, list[int]]] = {}
        for index, declared in enumerate(jobs):
            if declared.name not in known and not configured:
                continue
            if declared.name not in silent:
                options = JobOptions(**configured | dict(known.get(declared.name, NO_OPTIONS).given()))
                given = attrgetter(*(field for field, _ in options.given()))
                silent[declared.name] = options, given, given(_NONE), found.setdefault(options, [])
            options, given, none, places = silent[declared.name]
            if given(declared) == none:
                places.append(index)
            elif any((left := options.without(declared)).given()):
                found.setdefault(left, []).append(index)
        return [(options, places) for options, places in found.items() if places]

    def _setting_changed(self, setting: Setting) -> None:
        self.known.pop(setting.name, None)
        self._given.pop(setting.name, None)
        self.reserved.discard(setting.name)
        if not setting.is_deleted:
            read = self.known[setting.name] = _read(setting)
            if any((given := read.options.of_jobs).given()):
                self._given[setting.name] = given
            if read.options.server_only:
                self.reserved.add(setting.name)
        self.has_defaults = bool(self._configured or self._given)


def _read(setting: Setting) -> Registered:
    return _decoder.decode(setting.body)
