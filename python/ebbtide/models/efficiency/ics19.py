"""The machines of ics19: tables 1 and 2 as formulas, and what the paper's figures ask of them."""

from __future__ import annotations

import math
from dataclasses import replace

from ebbtide.errors import InvalidArgument

from . import first_order
from .levels import Levels

# Table 1 at 3.6 EF, as printed: failures per second of all CPUs, and the CPUs, by GPUs a CPU. For one CPU of a machine of
# another scale the table has the same rates, to what it prints.
CPU_FAILURES = {
    2: (6.36e-5, 230400),
    4: (3.31e-5, 115200),
    8: (1.73e-5, 57600),
    16: (9.13e-6, 28800),
    32: (4.84e-6, 14400),
}
SYSTEM_FAILURES = 1.77e-7
GPU_FAILURES, NODE_FAILURES = 1.139e-9, 1.444e-10  # of one
OUTSIDE_GPUS = 1.2  # state over that of the GPUs, for levels 2 and 3: the one constant that is fitted


def table_row(exaflops: float, density: int) -> dict[str, float]:
    """A column of table 1, by the names of ``data/ics19.csv``: counts, GB/s and failures per second.

    ``exaflops`` is that of the column's head: GPUs of 7.8 TFLOP, rounded. Raises InvalidArgument, naming the field, for
    a density that the table does not have.

    >>> round(table_row(3.6, 16)["pfs_gb_s"])
    7591
    """
    if not (math.isfinite(exaflops) and 0 < exaflops <= 1000):
        raise InvalidArgument(f"exaflops: {exaflops!r} is not above 0 and at most 1000")
    if density not in CPU_FAILURES:
        raise InvalidArgument(
            f"density: {density!r} GPUs a CPU is not in table 1; it has {', '.join(map(str, CPU_FAILURES))}"
        )
    gpus = exaflops * 128000
    cpus = gpus / density
    nodes = cpus / 2
    all_exaflops = gpus * 7.8e-6 + cpus * 0.384e-6
    failures, of = CPU_FAILURES[density]
    return {
        "gpus": gpus,
        "cpus": cpus,
        "nodes": nodes,
        "pcie_gb_s": min(8 * gpus, 64 * cpus),
        "local_gb_s": 2.15 * nodes,
        "pfs_gb_s": 2500 * 1.3 ** math.log2(all_exaflops / 0.1917),
        "gpu_failures_s": GPU_FAILURES * gpus,
        "cpu_failures_s": failures / of * cpus,
        "node_failures_s": NODE_FAILURES * nodes,
        "system_failures_s": SYSTEM_FAILURES,
    }


def machine(
    exaflops: float = 3.6,
    density: int = 16,
    gpu_failures: float = 1,
    speedup: float = 1,
    written: float = 1,
    footprint: float = 1,
) -> Levels:
    """The three levels of such a machine (sec. 5.2): GPU to host memory, local disk, parallel file system.

    ``gpu_failures`` multiplies the failures of GPUs; ``speedup`` divides the time of level 1; ``written`` is the share of
    the state that levels 2 and 3 store; ``footprint`` is the program's share of the GPUs' memory, and with it of the state
    outside them (figure 12, upper part). Raises InvalidArgument, naming the field.
    """
    row = table_row(exaflops, density)
    if not 0 < footprint <= 1:
        raise InvalidArgument(f"footprint: {footprint!r} is not a share above 0 and up to 1")
    if not (math.isfinite(gpu_failures) and gpu_failures >= 0):
        raise InvalidArgument(f"gpu_failures: {gpu_failures!r} is not a finite factor of at least 0")
    if not (math.isfinite(speedup) and speedup > 0):
        raise InvalidArgument(f"speedup: {speedup!r} is not a finite factor above 0")
    if not 0 <= written <= 1:
        raise InvalidArgument(f"written: {written!r} is not a share from 0 to 1")
    state = footprint * 32 * row["gpus"]
    stored = written * OUTSIDE_GPUS * state
    write = (state / row["pcie_gb_s"] / speedup, stored / row["local_gb_s"], stored / row["pfs_gb_s"])
    gpu, cpu, node, system = (row[f"{part}_failures_s"] for part in ("gpu", "cpu", "node", "system"))
    try:
        return Levels(write, (gpu_failures * gpu + cpu, node, system))
    except InvalidArgument as error:
        field = "gpu_failures" if gpu_failures > 1 else "exaflops"
        raise InvalidArgument(f"{field}: too many failures: {error}") from None


def free(whole: Levels, *levels: int) -> Levels:
    """The machine if checkpoints of these levels took no time (figure 3)."""
    costs = tuple(0.0 if level in levels else cost for level, cost in enumerate(whole.write, 1))
    return replace(whole, write=costs, read=costs)


def efficiencies(whole: Levels) -> dict[str, float]:
    """Percent, to first order: ``baseline``, ``level1_free`` and ``levels12_free``.

    >>> {name: round(percent, 1) for name, percent in efficiencies(machine()).items()}
    {'baseline': 85.0, 'level1_free': 92.7, 'levels12_free': 97.2}
    """
    cases = {"baseline": (), "level1_free": (1,), "levels12_free": (1, 2)}
    return {name: 100 * first_order.efficiency(free(whole, *levels)) for name, levels in cases.items()}


def most_gpu_failures(
    least: float, speedup: float, written: float, exaflops: float = 3.6, density: int = 16
) -> float | None:
    """The highest factor of the failures of GPUs at which the efficiency is ``least`` (0 to 1); None if it never is."""
    costs = machine(exaflops, density, 0, speedup, written)
    row = table_row(exaflops, density)
    others = first_order.overhead(free(costs, 1))
    room, cost = 1 / least - 1 - others, costs.write[0]
    if room < 0:
        return None
    root = (-math.sqrt(2) + math.sqrt(2 + 4 * room)) / 2  # of x² + √2·x = room, x = √(λ·C)
    most = (root**2 / cost - row["cpu_failures_s"]) / row["gpu_failures_s"]
    return most if most >= 0 else None
