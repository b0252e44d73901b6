"""A pull worker that runs handlers which are code, in separate processes (`jqd worker --code`).

It limits what faults in the operator's own code can damage. It protects from malicious code only if a sandbox is
configured (docs/operate/SECURITY.md).
"""

from jqd.code.config import CodeConfig
from jqd.code.supervisor import supervise

__all__ = ["CodeConfig", "supervise"]
