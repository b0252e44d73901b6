"""Who asks, as this daemon knows him: GET /v1/me."""

from jqd.api.context import ApiContext
from jqd.api.message import answer
from jqd.api.v1.responses import Me
from jqd.http import Request, Response


async def get(parts: ApiContext, request: Request) -> Response:
    """The role, the tenant and the scopes of the token."""
    who = parts.services.principal
    return answer(200, Me(who.role.value, who.tenant, who.scopes), request.answer_language())
