"""The models of `ebbtide.models.efficiency`: the exact one against numbers, random runs and a search of all patterns."""

from __future__ import annotations

import itertools
import math

import ebbtide
import numpy as np
import pytest
from ebbtide.models.efficiency import Levels, Pattern, best, drained, efficiency, markov, sample
from ebbtide.models.efficiency.first_order import efficiency as first_order

EXAMPLE = Levels(write=(8, 60, 200), failures=(5e-4, 2e-5, 2e-6))


def random_machine(draw: np.random.Generator) -> Levels:
    first = draw.uniform(1, 20)
    second = first * draw.uniform(1.5, 10)
    third = second * draw.uniform(1.5, 8)
    lost = 10 ** draw.uniform((-3, -3.5, -4), (-1.2, -1.5, -2))  # failures during a checkpoint
    write = (first, second, third)
    read = tuple(cost * draw.uniform(0.3, 2) for cost in write)
    return Levels(write, tuple(lost / write), read)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "expected"), [((160, 20, 4), 0.8390), ((100, 5, 3), 0.7436), ((167.6, 13, 5), 0.8427)]
)
def test_exact_efficiency(pattern, expected):
    assert efficiency(EXAMPLE, Pattern(*pattern)) == pytest.approx(expected, abs=5e-5)


def test_best_pattern():
    found = best(EXAMPLE)
    assert found.n1 == 13 and found.n2 == 5
    assert found.work == pytest.approx(167.6, abs=0.5)
    assert efficiency(EXAMPLE, found) == pytest.approx(0.8427, abs=5e-5)


def test_random_runs_agree_with_the_exact_model():
    draw = np.random.default_rng(2019)
    off = []
    for seed in range(200):
        machine = random_machine(draw)
        n1, n2 = (int(draw.integers(1, most)) for most in (8, 5))
        work = math.sqrt(2 * machine.write[0] / machine.failures[0]) * draw.uniform(0.4, 2)
        found = sample(machine, Pattern(work, n1, n2), runs=400, seed=seed)
        off.append((found.seconds - float(markov.pattern_seconds(machine, work, n1, n2))) / found.error)
    assert max(map(abs, off)) < 3
    # And they are off by as much as chance has it: the squares' sum is that of 200 normal numbers, within 3 deviations.
    assert abs(sum(z * z for z in off) - 200) < 3 * math.sqrt(2 * 200)
    assert abs(sum(off)) < 3 * math.sqrt(200)


def test_the_optimiser_finds_what_a_search_of_all_patterns_finds():
    draw = np.random.default_rng(5)
    counts = np.unique(np.r_[1:26, np.rint(np.geomspace(26, 1000, 12))]).astype(int)
    for _ in range(100):
        machine = random_machine(draw)
        works = np.geomspace(0.3, 4, 30) * math.sqrt(2 * machine.write[0] / machine.failures[0])
        n1, n2, work = np.meshgrid(counts, counts[counts <= 20], works, sparse=True)
        searched = markov.efficiencies(machine, work, n1, n2).max()
        assert efficiency(machine, best(machine)) >= searched * 0.999


def test_a_segment_alone_is_the_textbook_formula():
    for work, cost, rate in itertools.product((10, 100), (0, 5), (1e-4, 1e-2)):
        machine = Levels((cost, cost, cost), (rate, 0, 0), (0, 0, 0))
        whole = math.expm1(rate * (work + cost)) / rate  # Daly 2006, without a time to restart
        assert efficiency(machine, Pattern(work, 1, 1)) == pytest.approx(work / whole)


def test_without_failures_only_checkpoints_cost():
    machine = Levels((1, 2, 3), (0, 0, 0))
    assert efficiency(machine, Pattern(10, 3, 2)) == pytest.approx(60 / (60 + 4 * 1 + 2 + 3))
    assert sample(machine, Pattern(10, 3, 2), runs=2).seconds == 69
    assert best(machine).work == math.inf


def test_rare_failures_are_the_first_order():
    machine = Levels((8, 60, 200), (5e-8, 2e-9, 2e-10))
    assert 1 - efficiency(machine, best(machine)) == pytest.approx(1 - first_order(machine), rel=0.05)


def test_draining_leaves_time_for_each_copy():
    draw = np.random.default_rng(11)
    for _ in range(20):
        machine = drained(random_machine(draw))
        work, n1, n2 = best(machine)
        between = [(work + machine.write[0]) * segments for segments in (1, n1, n1 * n2)]
        assert all(gap >= least * (1 - 1e-9) for gap, least in zip(between, machine.apart))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"write": (-1, 2, 3)}, "write of level 1: -1 is not"),
        ({"failures": (0.001, math.nan, 0)}, "failures of level 2: nan is not"),
        ({"failures": (0.001, 0, -1e-9)}, "failures of level 3: -1e-09 is not"),
        ({"read": (1, math.inf, 3)}, "read of level 2: inf is not"),
        ({"failures": (0, 0, 0.5)}, "failures of level 3: one each 2 s; a checkpoint takes 3 s"),
        ({"write": (1, 2)}, "write: .* three numbers"),
    ],
)
def test_a_wrong_machine_is_refused_by_name(fields, named):
    with pytest.raises(ebbtide.InvalidArgument, match=named):
        Levels(**{"write": (1, 2, 3), "failures": (0, 0, 0), **fields})


@pytest.mark.parametrize(("pattern", "named"), [((0, 1, 1), "work"), ((1, 0, 1), "n1"), ((1, 1, 1.5), "n2")])
def test_a_wrong_pattern_is_refused_by_name(pattern, named):
    for model in (efficiency, sample):
        with pytest.raises(ebbtide.InvalidArgument, match=f"{named}: "):
            model(EXAMPLE, Pattern(*pattern))


@pytest.mark.filterwarnings("error")
def test_what_never_ends_has_no_efficiency():
    never = Levels((1, 2, 3), (0.5, 1e-3, 1e-3), (1e4, 1e4, 1e4))
    assert efficiency(never, Pattern(10, 3, 2)) == 0
    assert efficiency(Levels((1, 2, 3), (0.5, 1e-3, 1e-3)), Pattern(1e6, 3, 2)) == 0
    assert efficiency(never, best(never)) < 1e-9
