"""The protocols of workers: what is sent to each kind of worker, and what its answers mean. Each is one file, without
I/O."""

from jqd.runner.protocols.lightjq import LightJQ
from jqd.runner.protocols.lines import Lines
from jqd.runner.protocols.native import Native
from jqd.runner.protocols.protocol import WorkerProtocol
from jqd.runner.protocols.webhook import WebHook
from jqd.runner.worker import StyleName

STYLES: dict[StyleName, WorkerProtocol] = {
    "native": Native(),
    "lightjq": LightJQ(),
    "webhook": WebHook(),
    "lines": Lines(),
}
