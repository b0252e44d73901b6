"""The rules of the edge, whatever surface is asked: taking, finding, changing and cancelling jobs, and their workers.

Words and errors are the domain's; nothing here knows of HTTP (adr/0052).
"""

from jqd.domain.job_spec import JobSpec
from jqd.service.config import ServiceConfig
from jqd.service.find import Coming
from jqd.service.services import Services

__all__ = ["Coming", "JobSpec", "ServiceConfig", "Services"]
