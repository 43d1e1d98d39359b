"""A large machine for a day of virtual time: the planner of each node, one shared file system, and failures (ics19).

>>> cluster = Cluster(nodes=1000, gpus=8)
>>> day = run(cluster, seed=1, seconds=3600)
>>> 0.9 < day.efficiency < 1
True
"""

from .machine import Cluster
from .model import expected
from .simulation import Day, run

__all__ = ["Cluster", "Day", "expected", "run"]
