"""Names in paths: what a daemon reads is exactly the name that was given, or nothing is sent."""

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import httpx2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jqd.client import Client, Invalid
from jqd.client.errors import JqdClientError
from tests.harness.handled import Handled

CALLS: dict[str, tuple[str, Callable[[Client, str], Any]]] = {
    "get": ("/v1/jobs/{}", lambda client, name: client.get(name)),
    "result": ("/v1/jobs/{}", lambda client, name: client.result(name)),
    "log": ("/v1/jobs/{}/log", lambda client, name: client.log(name)),
    "cancel": ("/v1/jobs/{}", lambda client, name: client.cancel(name)),
    "retry": ("/v1/jobs/{}/retry", lambda client, name: client.retry(name)),
    "run_now": ("/v1/jobs/{}/run-now", lambda client, name: client.run_now(name)),
    "change": ("/v1/jobs/{}", lambda client, name: client.change(name, priority=1)),
    "why": ("/v1/jobs/{}/why", lambda client, name: client.why(name)),
    "delete": ("/v1/jobs/{}", lambda client, name: client.delete(name)),
    "events": ("/v1/jobs/{}/events", lambda client, name: list(client.events(name))),
    "flow": ("/v1/jobs/{}/flow", lambda client, name: client.flow(name)),
    "cancel_flow": ("/v1/jobs/{}/flow/cancel", lambda client, name: client.cancel_flow(name)),
    "retry_flow": ("/v1/jobs/{}/flow/retry", lambda client, name: client.retry_flow(name)),
    "group": ("/v1/groups/{}", lambda client, name: client.group(name)),
    "close_group": ("/v1/groups/{}/close", lambda client, name: client.close_group(name)),
    "cancel_group": ("/v1/groups/{}/cancel", lambda client, name: client.cancel_group(name)),
    "retry_group": ("/v1/groups/{}/retry", lambda client, name: client.retry_group(name)),
    "constraint": ("/v1/constraints/{}", lambda client, name: client.constraint(name)),
    "set_constraint": ("/v1/constraints/{}", lambda client, name: client.set_constraint(name, "true", pause=True)),
    "delete_constraint": ("/v1/constraints/{}", lambda client, name: client.delete_constraint(name)),
    "schedule": ("/v1/schedules/{}", lambda client, name: client.schedule(name)),
    "set_schedule": ("/v1/schedules/{}", lambda client, name: client.set_schedule(name, {"name": "a"}, every=9)),
    "delete_schedule": ("/v1/schedules/{}", lambda client, name: client.delete_schedule(name)),
    "pause_schedule": ("/v1/schedules/{}/pause", lambda client, name: client.pause_schedule(name)),
    "resume_schedule": ("/v1/schedules/{}/resume", lambda client, name: client.resume_schedule(name)),
    "run_schedule": ("/v1/schedules/{}/run-now", lambda client, name: client.run_schedule(name)),
    "unregister": ("/v1/workers/{}", lambda client, name: client.unregister(name)),
    "handler": ("/v1/handlers/{}", lambda client, name: client.handler(name)),
    "set_handler": ("/v1/handlers/{}", lambda client, name: client.set_handler(name, "http://a", {})),
    "delete_handler": ("/v1/handlers/{}", lambda client, name: client.delete_handler(name)),
    "drain": ("/v1/daemons/{}/drain", lambda client, name: client.drain(name)),
    "resume_daemon": ("/v1/daemons/{}/resume", lambda client, name: client.resume_daemon(name)),
    "pause_type": ("/v1/types/{}/pause", lambda client, name: client.pause_type(name)),
    "resume_type": ("/v1/types/{}/resume", lambda client, name: client.resume_type(name)),
    "set_quota": ("/v1/quotas/{}", lambda client, name: client.set_quota(name)),
    "delete_quota": ("/v1/quotas/{}", lambda client, name: client.delete_quota(name)),
    "revoke_token": ("/v1/tokens/{}", lambda client, name: client.revoke_token(name)),
}
NAMES = st.one_of(
    st.text(st.sampled_from("./%?#\\;:@&+ a2Eeéx\n\x00")), st.text(), st.text(st.characters(categories=["Cs"]))
)


@pytest.mark.parametrize("call", CALLS)
def test_the_name_stands_in_its_segment_as_it_is_or_nothing_is_sent(call: str) -> None:
    form, make = CALLS[call]
    asked: list[str] = []
    refusals: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.raw_path.decode("ascii"))
        return httpx2.Response(404, json={"title": "none"})

    @given(NAMES)
    @settings(max_examples=10)
    @example(".")
    @example("..")
    @example("%2E")
    @example("../types/pause")
    @example("./")
    @example("")
    def ask(name: str) -> None:
        asked.clear()
        refusals.clear()
        try:
            make(client, name)
        except Invalid as error:
            refusals.append(str(error))
            assert (asked, name in ("", ".", "..") or not is_unicode(name)) == ([], True)
        except ValueError:
            assert (name, asked) == ("", []), "an id is never empty"
        except JqdClientError:
            pieces = form.replace("{}", "\0").split("/")
            assert [unquote(each) for each in asked[0].partition("?")[0].split("/")] == [
                name if piece == "\0" else piece for piece in pieces
            ]
        else:
            raise AssertionError("a 404 is an error")
        assert all("nothing was sent" in each for each in refusals)

    with Client("http://d", transport=Handled(answer)) as client:
        ask()


def is_unicode(name: str) -> bool:
    return not any("\ud800" <= each <= "\udfff" for each in name)
