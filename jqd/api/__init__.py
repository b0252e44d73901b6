"""The HTTP edge: decode, one call of the service, render. No business rules."""

from jqd.api.app import Api
from jqd.api.auth import Authenticator
from jqd.api.config import ApiConfig
from jqd.api.context import ApiContext

__all__ = ["Api", "ApiConfig", "ApiContext", "Authenticator"]
