"""Which jobs make way for one that is needed at once (sc22, slide 53): what it costs least, and what that does to a machine.

>>> jobs = [Job("a", 2, 7200, 3600, 9000, 10**12), Job("b", 2, 7200, 600, 9000, 10**12), Job("c", 4, 900, 900, 60, 0)]
>>> plan = decide(jobs, nodes=6, deadline=120, bandwidth=10**10)
>>> plan.actions, plan.lost / 3600  # "c" ends by itself; there is time for one checkpoint, and "a" has more to lose
(('checkpoint', 'keep', 'ends'), 0.0)
"""

from .bound import least_unrounded
from .decision import ACTIONS, UNITS, Plan, curve, decide, greedy, in_units
from .jobs import Job, read_jobs
from .machine import POLICIES, Machine, Outcome, run
from .workload import Arrival, generate, read_workload

__all__ = [
    "ACTIONS",
    "POLICIES",
    "UNITS",
    "Arrival",
    "Job",
    "Machine",
    "Outcome",
    "Plan",
    "curve",
    "decide",
    "generate",
    "greedy",
    "in_units",
    "least_unrounded",
    "read_jobs",
    "read_workload",
    "run",
]
