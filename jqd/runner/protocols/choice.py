"""Chooses the protocol of a worker by the style that it registered."""

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
