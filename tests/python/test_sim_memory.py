"""The simulator's option for memory that comes while the programs run."""

from __future__ import annotations

import pytest

from ebbtide.errors import InvalidArgument
from ebbtide.sim import Machine, Program, Provision, Shot, Tier, run

MIB = 1 << 20
TRACE = Shot([16 * MIB] * 32, interval=0.001)


def machine(provision: Provision | None) -> Machine:
    return Machine.usual("64MiB", "512MiB", "8GiB", provision=provision)


def test_programs_wait_for_memory_that_comes_slowly() -> None:
    at_once, slow = run(machine(None), TRACE), run(machine(Provision(touch=1e9, pin=2e9)), TRACE, verify=True)
    assert not slow.refused
    assert slow.wall_s > at_once.wall_s
    device, host, _ = slow.tiers
    assert host["memory_wait_s"] > 0 < host["ready_s"] < slow.wall_s
    assert device["memory_wait_s"] == device["ready_s"] == 0.0
    assert all(tier["memory_wait_s"] == tier["ready_s"] == 0.0 for tier in at_once.tiers)


def test_memory_that_is_not_needed_does_not_come() -> None:
    result = run(Machine([Tier("host", "4GiB", provision=Provision())]), Shot([MIB]))
    assert result.tiers[0]["ready_s"] is None


@pytest.mark.parametrize("provision", [Provision(touch=0), Provision(pin=-1), Provision(pin_latency=-1)])
def test_rates_that_cannot_be_are_refused(provision: Provision) -> None:
    with pytest.raises(InvalidArgument, match="host"):
        run(machine(provision), TRACE)


def test_a_file_is_not_provisioned() -> None:
    with pytest.raises(InvalidArgument, match="local"):
        run(Machine([Tier("local", "1GiB", provision=Provision())]), Program([]))
