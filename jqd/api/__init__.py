"""The HTTP API. Each route's handler decodes a request, makes one call of the service (jqd/service), and encodes the
answer."""

from jqd.api.app import Api
from jqd.api.auth import Authenticator
from jqd.api.config import ApiConfig
from jqd.api.context import ApiContext

__all__ = ["Api", "ApiConfig", "ApiContext", "Authenticator"]
