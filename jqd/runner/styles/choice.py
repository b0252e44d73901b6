"""Which style a worker has. It is chosen here and nowhere else, by the worker's registration."""

from jqd.runner.styles.lightjq import LightJQ
from jqd.runner.styles.lines import Lines
from jqd.runner.styles.native import Native
from jqd.runner.styles.style import Style
from jqd.runner.styles.webhook import WebHook
from jqd.runner.worker import StyleName, Worker

STYLES: dict[StyleName, Style] = {"native": Native(), "lightjq": LightJQ(), "webhook": WebHook(), "lines": Lines()}


def style_of(worker: Worker) -> Style:
    """The style that a worker registered with."""
    return STYLES[worker.style]
