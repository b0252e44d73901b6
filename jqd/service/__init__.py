"""The rules behind all surfaces: taking, finding, changing and cancelling jobs, and workers.

It uses the domain's words and errors, and knows nothing of HTTP (adr/0013).
"""

from jqd.domain.job_spec import JobSpec
from jqd.service.config import ServiceConfig
from jqd.service.find import Coming
from jqd.service.services import Services

__all__ = ["Coming", "JobSpec", "ServiceConfig", "Services"]
