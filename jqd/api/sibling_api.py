"""The HTTP API between the processes of one `jqd serve --processes N`. Each process has its own address for it, and
answers only what other processes ask.

Anybody on this machine can connect there, without the limits and certificates of the shared address. So siblings must
send the root token, which all processes have, besides the token of the caller for whom they ask.
"""

from jqd.api.app import Api
from jqd.api.context import ApiContext
from jqd.api.message import refuse
from jqd.api.problems import Problem
from jqd.api.siblings import ASKED, FOR_ITSELF, SETTINGS
from jqd.domain.errors import JqdError
from jqd.domain.record import decode_rules
from jqd.domain.tokens import same_secret
from jqd.http import BodyBudget, Request, Response
from jqd.service.settings import RULES_BYTES_MAX, learn


class SiblingApi:
    """The HTTP application for requests from sibling processes; it refuses all others."""

    def __init__(self, api: Api, parts: ApiContext) -> None:
        self._api, self._parts = api, parts
        self._bodies = BodyBudget(2 * RULES_BYTES_MAX, lambda _: ("", False), lambda: False)  # a frame may have all

    async def __call__(self, request: Request) -> Response | None:
        if not same_secret(request.headers.get(FOR_ITSELF, ""), self._parts.auth.root):
            return refuse(
                request, Problem(401, "only the processes of this port talk here; the API is where they listen")
            )
        if (request.method, request.path) == ("POST", SETTINGS):
            try:
                return await self._learn(request)
            except JqdError as error:
                return refuse(request, error)
            finally:
                self._bodies.release(request)
        if request.method == "GET" and request.path in ASKED:
            return await self._api(request)
        return refuse(request, Problem(404, "no process asks this of another"))

    async def _learn(self, request: Request) -> Response | None:
        """Save settings that another process sends because it has saved them. Raises NotYet, JournalRefused,
        JournalDamaged, Refused."""
        if (body := await self._bodies.read(request, RULES_BYTES_MAX)) is None:
            return None
        await learn(self._parts.services, decode_rules(body))
        return Response(204)
