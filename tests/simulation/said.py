"""What became of a word that was said: when it was sent and answered, and which rule held there then."""

import math
from dataclasses import dataclass

from jqd.domain.settings import Setting
from tests.simulation.say import Say

HEARD_S = 1.0  # so soon all daemons that can hear of it know what was said


@dataclass(slots=True, eq=False)
class Word:
    """What became of it."""

    say: Say
    node: str
    sent_s: float
    answered_s: float = math.inf
    """Well: it is on disk, they say."""
    refused: bool = False
    setting: Setting | None = None
    """What held at that daemon when it was answered."""
