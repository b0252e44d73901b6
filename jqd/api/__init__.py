"""The HTTP edge: parse, call one component, render. No business rules."""

from jqd.api.app import Api
from jqd.api.config import ApiConfig
from jqd.api.parts import Control, Parts

__all__ = ["Api", "ApiConfig", "Control", "Parts"]
