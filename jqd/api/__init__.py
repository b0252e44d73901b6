"""The HTTP API: each route decodes a request, makes one call of the service, and encodes the answer."""

from jqd.api.app import Api
from jqd.api.auth import Authenticator
from jqd.api.config import ApiConfig
from jqd.api.context import ApiContext

__all__ = ["Api", "ApiConfig", "ApiContext", "Authenticator"]
