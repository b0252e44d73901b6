"""The rules of the edge, whatever surface is asked: taking, finding, changing and cancelling jobs, and their workers.

Words and errors are the domain's; nothing here knows of HTTP (adr/0052).
"""

from jqd.desk.config import DeskConfig
from jqd.desk.desk import Desk
from jqd.desk.find import Coming
from jqd.desk.job import NewJob

__all__ = ["Coming", "Desk", "DeskConfig", "NewJob"]
