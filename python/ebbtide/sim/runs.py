"""Running traces on machines, and the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import ebbtide._models as _models
from ebbtide.sim.machine import Machine
from ebbtide.sim.program import Program, Shot, Trace


class Call(NamedTuple):
    """One call and how it went."""

    kind: str
    history: int
    version: int
    bytes: int
    begun_s: float
    ended_s: float
    reason: str
    found_on: str | None
    prefetch_distance: int
    detail: str
    rank: int

    @property
    def blocked_s(self) -> float:
        """How long the program was blocked in it."""
        return self.ended_s - self.begun_s


@dataclass(frozen=True)
class Result:
    """The results of a run. ``calls`` in the order in which they began; ``tiers`` and ``links`` are rank 0's.

    Of each tier, ``ready_s`` says when all of its memory was there (None: not all of it was needed, 0.0: from the start) and
    ``memory_wait_s`` how long transfers waited for it, summed.
    """

    calls: list[Call]
    wall_s: float
    checkpoint_blocked_s: float
    restore_blocked_s: float
    wait_blocked_s: float
    tiers: list[dict[str, Any]]
    links: list[dict[str, Any]]
    ranks: list[dict[str, Any]]
    peaks: dict[str, int]

    @property
    def blocked_s(self) -> float:
        """The time that the program was blocked in checkpoint and restore calls."""
        return self.checkpoint_blocked_s + self.restore_blocked_s

    @property
    def checkpoints(self) -> list[Call]:
        """The calls that write."""
        return [call for call in self.calls if call.kind in ("checkpoint", "reserve")]

    @property
    def restores(self) -> list[Call]:
        """The calls that read."""
        return [call for call in self.calls if call.kind in ("restore", "borrow")]

    @property
    def refused(self) -> list[Call]:
        """The calls that did not succeed; ``reason`` and ``detail`` say why."""
        return [call for call in self.calls if call.reason != "ok"]


def run(
    machine: Machine,
    trace: Trace,
    *,
    ranks: int = 1,
    fault: float = 0.0,
    permanent: float = 0.0,
    seed: int = 1,
    verify: bool = False,
) -> Result:
    """Runs ``trace`` on ``machine`` in virtual time.

    ranks: the number of processes, each with its own caches and the same trace; they share the groups of links.
    fault, permanent: how likely a transfer is to fail once, or permanently, drawn from ``seed``.
    verify: follow every byte and raise RuntimeError when one is not what was written.
    """
    return run_ranks(machine, [trace] * ranks, fault=fault, permanent=permanent, seed=seed, verify=verify)


def run_ranks(
    machine: Machine,
    traces: Sequence[Trace],
    *,
    fault: float = 0.0,
    permanent: float = 0.0,
    seed: int = 1,
    verify: bool = False,
) -> Result:
    """Like :func:`run`, with one trace per rank."""
    plain = []
    for trace in traces:
        programs = [trace] if isinstance(trace, (Shot, Program)) else trace
        plain.append([program._program(machine) for program in programs])
    simulation = _models.Simulation(machine._make(), plain, fault, permanent, seed, verify, 1 if verify else 0, True)
    simulation.run()
    return _result(machine._present, simulation.result())


def _result(tiers: list[str], raw: dict[str, Any]) -> Result:
    calls = []
    for _, kind, history, version, size, begun, ended, reason, found_on, distance, detail, rank in raw["calls"]:
        where = tiers[found_on] if found_on >= 0 else None
        end = begun if ended is None else ended
        calls.append(Call(kind, history, version, size, begun / 1e9, end / 1e9, reason, where, distance, detail, rank))
    return Result(
        calls,
        raw["makespan"] / 1e9,
        raw["checkpoint_blocked"] / 1e9,
        raw["restore_blocked"] / 1e9,
        raw["wait_blocked"] / 1e9,
        raw["ranks"][0]["tiers"],
        raw["ranks"][0]["links"],
        raw["ranks"],
        dict(zip(tiers, raw["peaks"])),
    )


def predict(machine: Machine, trace: Trace, *, ranks: int = 1) -> float:
    """The seconds that the program will be blocked in checkpoint and restore calls, over all ranks."""
    return run(machine, trace, ranks=ranks).blocked_s
