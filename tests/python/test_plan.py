"""The models of three levels: what the paper prints, the exact chain, and the best pattern."""

import pytest

from ebbtide.errors import InvalidArgument
from ebbtide.plan import Levels, Pattern, best, efficiency, ics19

MACHINE = Levels(write=(8, 60, 200), failures=(5e-4, 2e-5, 2e-6))


def test_the_first_order_gives_the_papers_efficiencies():
    found = ics19.efficiencies(ics19.machine(3.6, 16))
    assert found["baseline"] == pytest.approx(84.9, abs=0.5)
    assert found["level1_free"] == pytest.approx(92.7, abs=0.5)
    assert found["levels12_free"] == pytest.approx(97.2, abs=0.5)
    assert ics19.efficiencies(ics19.machine(gpu_failures=0.1))["baseline"] == pytest.approx(90, abs=1)
    assert ics19.efficiencies(ics19.machine(gpu_failures=50))["baseline"] < 54


@pytest.mark.parametrize(("pattern", "right"), [(Pattern(160, 20, 4), 0.8390), (Pattern(100, 5, 3), 0.7436)])
def test_the_exact_model_gives_known_values(pattern, right):
    assert efficiency(MACHINE, pattern) == pytest.approx(right, abs=5e-5)


def test_the_best_pattern_of_a_known_machine():
    found = best(MACHINE)
    assert (found.n1, found.n2) == (13, 5)
    assert found.work == pytest.approx(167.6, abs=1)
    assert efficiency(MACHINE, found) == pytest.approx(0.8427, abs=5e-5)


def test_bad_machines_are_refused_by_field():
    with pytest.raises(InvalidArgument, match="failures of level 2"):
        Levels(write=(8, 60, 200), failures=(5e-4, -1, 2e-6))
    with pytest.raises(InvalidArgument, match="failures of level 3.*mean time between failures"):
        Levels(write=(8, 60, 200), failures=(5e-4, 2e-5, 1e-2))
