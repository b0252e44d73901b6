"""Functions of optional features that the service calls."""

from jqd.rate_limits.service import why_limited
from jqd.service.services import Hooks
from jqd.tenants.quota_service import count_usage, reserve

HOOKS = Hooks(why_limited=why_limited, reserve=reserve, count_usage=count_usage)
