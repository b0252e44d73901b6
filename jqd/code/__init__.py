"""Handlers that are code: a pull worker that runs them in processes of their own (`jqd worker --code`).

It contains faults of the operator's own code; it is no sandbox, unless configured with one (docs/operate/SECURITY.md).
"""

from jqd.code.config import CodeConfig
from jqd.code.supervisor import supervise

__all__ = ["CodeConfig", "supervise"]
