"""The business logic behind all APIs: pushing, finding, changing and cancelling jobs, and registering workers.

This package uses the domain's types and errors, and knows nothing of HTTP (adr/0013).
"""

from jqd.domain.job_spec import JobSpec
from jqd.service.config import ServiceConfig
from jqd.service.find import Coming
from jqd.service.services import Services

__all__ = ["Coming", "JobSpec", "ServiceConfig", "Services"]
