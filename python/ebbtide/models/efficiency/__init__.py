"""What checkpoints on three levels cost a machine, before it is run: efficiency, and the best intervals (ics19, sec. 5).

Times are seconds, rates failures per second, sizes bytes.

>>> machine = Levels(write=(8, 60, 200), failures=(5e-4, 2e-5, 2e-6))
>>> pattern = best(machine)
>>> round(efficiency(machine, pattern), 4)
0.8427
"""

from ebbtide.models.efficiency.levels import Levels, drained
from ebbtide.models.efficiency.markov import Pattern, efficiency
from ebbtide.models.efficiency.monte_carlo import Sampled, sample
from ebbtide.models.efficiency.optimum import best
from ebbtide.models.efficiency.this_machine import Plan, Site, plan, read_failures

__all__ = [
    "Levels",
    "Pattern",
    "Plan",
    "Sampled",
    "Site",
    "best",
    "drained",
    "efficiency",
    "plan",
    "read_failures",
    "sample",
]
