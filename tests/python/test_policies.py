"""What the choice of victims is worth, in the simulator: the store's own rule is never worse than those that look at recency."""

from __future__ import annotations

import pytest

from ebbtide._traces import column, make_trace
from ebbtide.sim import Link, Machine, Shot, Tier, run

MIB = 1 << 20
ORDERS = ("reverse", "sequential", "irregular")


def laptop(eviction: str) -> Machine:
    """Host memory, whose bandwidth all copies share, and a disk."""
    return Machine.usual(
        "64MiB", "256MiB", "1TiB", copy=8e9, device_host=8e9, memory=12e9, file_write=2e9, file_read=3e9,
        eviction=eviction, prefetch="manual",
    )  # fmt: skip


def node(eviction: str) -> Machine:
    """A GPU's share of a node as in hpdc23 sec. 5.3.4."""
    links = {name: Link(1.8e12) for name in ("app>device", "device>app")}
    links |= {name: Link(55e9) for name in ("device>host", "host>device")}
    links |= {name: Link(25e9) for name in ("app>host", "host>app")}
    links |= {"host>local": Link(2.5e9, group="disk"), "local>host": Link(1.7e9, group="disk")}
    tiers = [Tier("device", "4GiB"), Tier("host", "32GiB"), Tier("local", "1TiB")]
    return Machine(tiers, links, {"disk": 0.0}, eviction=eviction, prefetch="manual")


def sizes(varying: bool, count: int, mean: int, seed: int) -> list[int]:
    if not varying:
        return [mean] * count
    made = column(make_trace(count, 1, seed), 0)
    return [max(1, round(size * mean * count / sum(made))) for size in made]


def blocked(machine: Machine, of: list[int], order: str, interval: float, seed: int) -> float:
    shot = Shot(of, order=order, hints="all", interval=interval, compute_after_restore=True, seed=seed)
    found = run(machine, shot)
    assert not found.refused
    return found.blocked_s


@pytest.mark.parametrize("varying", [False, True], ids=["equal", "varying"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("machine", "count", "mean", "interval"),
    [(laptop, 128, 16 * MIB, 0.005), (node, 384, 128 * MIB, 0.010)],
    ids=["laptop", "node"],
)
def test_foreknowledge_loses_to_no_rule_of_recency(machine, count, mean, interval, order, varying):
    def in_all(eviction: str) -> float:
        return sum(
            blocked(machine(eviction), sizes(varying, count, mean, seed), order, interval, seed)
            for seed in range(5 if varying or order == "irregular" else 1)
        )

    assert in_all("score") <= 1.02 * in_all("lru")


@pytest.mark.parametrize("order", ORDERS)
def test_a_flush_does_not_slow_down_the_programs_copies_where_there_is_time_for_both(order):
    found = run(laptop("score"), Shot([16 * MIB] * 128, order=order, hints="all", interval=0.010))
    alone = 16 * MIB / 8e9
    assert found.checkpoint_blocked_s <= 1.001 * 128 * alone
