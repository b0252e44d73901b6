"""A pull worker that runs handlers in code, in separate processes (`jqd worker --code`).

It limits the damage of faults in the operator's own code; it is a sandbox only if configured so
(docs/operate/SECURITY.md).
"""

from jqd.code.config import CodeConfig
from jqd.code.supervisor import supervise

__all__ = ["CodeConfig", "supervise"]
