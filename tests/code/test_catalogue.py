"""What a worker knows of handlers in code: which it takes, which are broken, and what it says of these."""

from collections.abc import Sequence
from typing import Any

import trio
from trio.testing import MockClock

from jqd.code.catalogue import BROKEN_S, LOOK_S, REST_S_MAX, Catalogue
from jqd.code.context import CODE, Broken
from jqd.runner.worker import TROUBLE_MAX
from jqd.testing.clock import ManualClock
from tests.code.conftest import URL, FakeDaemon


class Known:
    """A catalogue of a fake daemon, whose handlers are `rows`."""

    def __init__(self, daemon: FakeDaemon, tenant: str = "", scopes: Sequence[str] = ()) -> None:
        self.rows: list[dict[str, Any]] = []
        self.old: dict[str, dict[str, Any]] = {}
        self.changes = 0
        daemon.answers["/v1/handlers"] = self._page
        self.catalogue = Catalogue(daemon.http, lambda: URL, tenant, ManualClock(), self._changed, scopes=scopes)
        self._daemon = daemon

    def put(self, name: str, version: int, lang: str = "python", **fields: Any) -> None:
        row = {"name": name, "version": version, "lang": lang, "body": "1", "options": {"batch": None}} | fields
        langs = [self.old[f"{name}@{one}"]["lang"] for one in range(1, version)] + [lang]
        row["versions"] = [{"version": one, "lang": lang, "out": None} for one, lang in enumerate(langs, 1)]
        self.rows = [one for one in self.rows if one["name"] != name] + [row]
        self.old[f"{name}@{version}"] = row
        path = f"/v1/handlers/{name}"
        self._daemon.answers[path] = lambda query: (200, self.old[f"{name}@{query['version']}"])

    def _page(self, query: Any) -> tuple[int, Any]:
        at = int(query.get("cursor", "0"))
        more = str(at + 1) if at + 1 < len(self.rows) else ""
        return 200, {"handlers": self.rows[at : at + 1], "cursor": more}

    def _changed(self) -> None:
        self.changes += 1


async def test_names_and_versions_in_code_are_taken_and_nothing_else(daemon: FakeDaemon, autojump_clock: None) -> None:
    known = Known(daemon)
    known.put("url", 1, "http")
    known.put("both", 1)
    known.put("both", 2, "http")
    known.put("mail", 1)
    known.put("mail", 2, "sh")
    known.put("theirs", 1, tenant="acme")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(known.catalogue.run)
        await trio.sleep(LOOK_S / 2)
        assert sorted(known.catalogue.jobtypes) == ["both@1", "mail", "mail@1", "mail@2"]
        found = [known.catalogue.find(name) for name in ("mail", "mail@1", "both", "both@1", "url", "theirs", "mail@9")]
        assert [one and one.called for one in found] == ["mail@2", "mail@1", None, "both@1", None, None, None]
        asked = len(daemon.asked)
        known.put("mail", 3)
        await trio.sleep(LOOK_S * 1.5)
        newest = known.catalogue.find("mail")
        assert newest is not None
        assert newest.called == "mail@3"
        assert known.changes == 2
        assert not any(path.startswith("/v1/handlers/") for path, _ in daemon.asked[asked:]), (
            "what is known never changes"
        )
        daemon.answers["/v1/handlers"] = lambda query: (0, {})
        await trio.sleep(LOOK_S * 3)
        assert "mail" in known.catalogue.jobtypes, "a daemon that is away changes nothing"
        nursery.cancel_scope.cancel()


async def test_of_a_token_for_one_version_that_version_alone_is_taken(daemon: FakeDaemon, autojump_clock: None) -> None:
    """The plain name is another jobtype, for which its registration would be refused."""
    known = Known(daemon, scopes=["mail@1", "pay"])
    known.put("mail", 1)
    known.put("pay", 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(known.catalogue.run)
        await trio.sleep(LOOK_S / 2)
        assert sorted(known.catalogue.jobtypes) == ["mail@1", "pay", "pay@1"]
        nursery.cancel_scope.cancel()


async def test_what_is_broken_rests_says_so_and_is_tried_again(daemon: FakeDaemon, autojump_clock: None) -> None:
    known = Known(daemon)
    known.put("mail", 1, before="import nothing")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(known.catalogue.run)
        await trio.sleep(LOOK_S / 2)
        definition = known.catalogue.find("mail")
        assert definition is not None
        known.catalogue.broke(definition, Broken("Traceback:\n no\x00thing"))
        assert list(known.catalogue.jobtypes) == ["mail@1"], "it names something, that its trouble may be read"
        assert known.catalogue.is_resting(definition)
        assert known.catalogue.trouble.startswith("handler mail@1 is broken since ")
        assert known.catalogue.trouble.isprintable()
        await trio.sleep(BROKEN_S + LOOK_S)
        assert set(known.catalogue.jobtypes) == {"mail", "mail@1"}
        assert known.catalogue.trouble, "until a batch has run"
        known.catalogue.mended(definition)
        assert known.catalogue.trouble == ""
        known.catalogue.broke(definition, Broken("again"))
        known.put("mail", 2, before="import json")
        await trio.sleep(LOOK_S * 1.5)
        assert "mail" in known.catalogue.jobtypes, "the new version is not broken"
        nursery.cancel_scope.cancel()


async def test_a_stall_delays_the_next_look_by_seconds(daemon: FakeDaemon, autojump_clock: MockClock) -> None:
    known = Known(daemon)
    looks, page = [trio.current_time()], daemon.answers["/v1/handlers"]

    def stalled(query: Any) -> tuple[int, Any]:
        looks.append(trio.current_time())
        if len(looks) == 2:
            autojump_clock.jump(60)  # the machine stands still
        return page(query)

    daemon.answers["/v1/handlers"] = stalled
    async with trio.open_nursery() as nursery:
        nursery.start_soon(known.catalogue.run)
        await trio.sleep(60 + 2 * REST_S_MAX)
        nursery.cancel_scope.cancel()
    assert looks[2] - looks[1] == 60 + REST_S_MAX


async def test_each_broken_handler_has_its_share_of_what_the_worker_says(
    daemon: FakeDaemon, autojump_clock: None
) -> None:
    known = Known(daemon)
    for number in range(100):
        known.put(f"h{number}", 1, before=f"import no{number}")
    known.put("twin", 1, before="import no0", eid="e")
    known.put("pair", 1, before="import no0", eid="e")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(known.catalogue.run)
        await trio.sleep(LOOK_S * 4)
        twin = known.catalogue.find("twin")
        assert twin is not None
        known.catalogue.broke(
            twin, Broken("Error: away; handler h1@1 is broken\n    at one (before:1:2)\n    at two (before:1:2)")
        )
        said = known.catalogue.trouble.split("; ")
        assert [one.split()[1] for one in said] == ["twin@1", "pair@1"], "both have that `before`"
        assert all(one.endswith("its before failed: Error: away handler h1@1 is broken") for one in said), said
        for number in range(100):
            each = known.catalogue.find(f"h{number}")
            assert each is not None
            known.catalogue.broke(each, Broken(f"no module no{number} " + "x" * 500))
        said = known.catalogue.trouble.split("; ")
        assert len(known.catalogue.trouble) <= TROUBLE_MAX
        assert len(said) > 70
        assert said[-1] == f"and {102 - len(said) + 1} more: see this worker's log"
        nursery.cancel_scope.cancel()


async def test_code_that_does_not_compile_rests_alone(daemon: FakeDaemon, autojump_clock: None) -> None:
    known = Known(daemon)
    known.put("mail", 1, eid="e")
    known.put("post", 1, eid="e")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(known.catalogue.run)
        await trio.sleep(LOOK_S / 2)
        mail = known.catalogue.find("mail")
        assert mail is not None
        known.catalogue.broke(mail, Broken("line 1", CODE))
        assert known.catalogue.is_resting(mail)
        assert list(known.catalogue.jobtypes) == ["post", "post@1"]
        assert "its code does not compile: line 1" in known.catalogue.trouble
        nursery.cancel_scope.cancel()
