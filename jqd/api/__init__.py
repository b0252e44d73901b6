"""The HTTP edge: decode, one call of the desk, render. No business rules."""

from jqd.api.app import Api
from jqd.api.config import ApiConfig
from jqd.api.parts import Parts
from jqd.api.who import Porter

__all__ = ["Api", "ApiConfig", "Parts", "Porter"]
