"""The HTTP edge: decode, one call of the desk, render. No business rules."""

from jqd.api.app import Api
from jqd.api.auth import Porter
from jqd.api.config import ApiConfig
from jqd.api.context import Parts

__all__ = ["Api", "ApiConfig", "Parts", "Porter"]
