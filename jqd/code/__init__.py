"""Handlers that are code: a pull worker that runs them in processes of their own (`jqd worker --code`).

Fault containment for the operator's own code, and no sandbox, unless it is told to use one (docs/operate/SECURITY.md).
"""

from jqd.code.config import CodeConfig
from jqd.code.supervisor import supervise

__all__ = ["CodeConfig", "supervise"]
