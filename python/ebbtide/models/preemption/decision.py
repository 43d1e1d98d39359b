"""The least work that must be lost so that nodes are free by a deadline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ebbtide.errors import InvalidArgument

from .jobs import Job

UNITS = 32  # equal parts of what the file system takes until the deadline
ACTIONS = ("keep", "kill", "checkpoint", "ends")


@dataclass(frozen=True)
class Plan:
    """``actions``: one of ACTIONS for each job. ``freed``: nodes. ``lost``: node-seconds of work. ``bytes``: that are
    checkpointed.
    """

    actions: tuple[str, ...]
    freed: int
    lost: float
    bytes: float


def units_of(job: Job, deadline: float, bandwidth: float) -> int:
    """What a checkpoint takes of the file system until the deadline, rounded up; more than UNITS: it is not possible."""
    return math.ceil(job.bytes / (deadline * bandwidth) * UNITS) if job.bytes else 0


def check(jobs: Sequence[Job], nodes: int, deadline: float, bandwidth: float) -> None:
    """Raises InvalidArgument, naming the field, for what no plan can be made of."""
    for name, value in (("deadline", deadline), ("bandwidth", bandwidth)):
        if not (math.isfinite(value) and value > 0):
            raise InvalidArgument(f"{name}: {value!r} is not a finite number above 0")
    there = sum(job.nodes for job in jobs)
    if not 0 < nodes <= there:
        raise InvalidArgument(f"nodes: {nodes!r} is not from 1 to {there}, the nodes of all jobs")


def _plan(jobs: Sequence[Job], actions: Sequence[str]) -> Plan:
    return Plan(
        tuple(actions),
        sum(job.nodes for job, action in zip(jobs, actions) if action != "keep"),
        math.fsum(job.unsaved for job, action in zip(jobs, actions) if action == "kill"),
        math.fsum(job.bytes for job, action in zip(jobs, actions) if action == "checkpoint"),
    )


def _first(jobs: Sequence[Job], deadline: float) -> list[str]:
    return ["ends" if job.remaining <= deadline else "keep" for job in jobs]


def decide(jobs: Sequence[Job], nodes: int, deadline: float, bandwidth: float) -> Plan:
    """The plan that frees at least ``nodes`` within ``deadline`` seconds and loses the least work (sc22, slide 53).

    A job that ends in time does so by itself. Each other one is kept; or killed, which loses what it did since its last
    checkpoint; or checkpointed, which loses nothing and takes its bytes of what the file system can write until then,
    ``bandwidth`` (bytes a second) times ``deadline``. The plan is that of ``in_units``, or of one of two rules that do not round
    (``greedy`` is one) if that loses less; with more checkpoints in place of kills where there is room left. Raises
    InvalidArgument, naming the field.
    """
    plans = [make(jobs, nodes, deadline, bandwidth) for make in (in_units, greedy, _cheapest_saved)]
    return min((_filled(jobs, plan, deadline * bandwidth) for plan in plans), key=lambda plan: plan.lost)


def in_units(jobs: Sequence[Job], nodes: int, deadline: float, bandwidth: float) -> Plan:
    """The plan that loses the least if bytes are counted in UNITS equal units of all that can be written, and rounded up.

    Dynamic programming over jobs, nodes and units. Raises InvalidArgument, naming the field.
    """
    check(jobs, nodes, deadline, bandwidth)
    actions = _first(jobs, deadline)
    free = sum(job.nodes for job, action in zip(jobs, actions) if action == "ends")
    running = [at for at, action in enumerate(actions) if action == "keep"]
    if free < nodes:
        for at, action in zip(running, _least([jobs[at] for at in running], nodes - free, deadline, bandwidth)):
            actions[at] = action
    return _plan(jobs, actions)


def _filled(jobs: Sequence[Job], plan: Plan, budget: float) -> Plan:
    """With checkpoints in place of kills while there are bytes for them, the largest loss for its bytes first."""
    actions, left = list(plan.actions), budget - plan.bytes
    killed = [at for at, action in enumerate(actions) if action == "kill"]
    for at in sorted(killed, key=lambda at: jobs[at].bytes / max(jobs[at].unsaved, 1e-300)):
        if jobs[at].bytes <= left:
            actions[at] = "checkpoint"
            left -= jobs[at].bytes
    return _plan(jobs, actions)


def _least(jobs: Sequence[Job], nodes: int, deadline: float, bandwidth: float) -> list[str]:
    """``least[u, n]``: the least loss of the jobs so far that frees at least n nodes with u units."""
    least = np.full((UNITS + 1, nodes + 1), np.inf)
    least[:, 0] = 0
    costs = [units_of(job, deadline, bandwidth) for job in jobs]
    chosen = []  # for each job its first state, and the bits of the states in which to kill and to save it is best
    seen, rest = 0, sum(job.nodes for job in jobs)
    for job, cost in zip(jobs, costs):
        seen, rest = min(nodes, seen + job.nodes), rest - job.nodes
        low = max(1, nodes - rest)  # the jobs that follow free no more than the rest
        states = least[:, low : seen + 1]
        best = _after(least, job.nodes, low, seen) + job.unsaved
        by_kill = best < states
        np.copyto(best, states, where=~by_kill)
        by_saving = np.zeros_like(by_kill)
        if cost <= UNITS:
            save = _after(least[: UNITS + 1 - cost], job.nodes, low, seen)
            np.less(save, best[cost:], out=by_saving[cost:])
            np.minimum(best[cost:], save, out=best[cost:])
        states[:] = best
        chosen.append((low, np.packbits(by_kill, axis=1), np.packbits(by_saving, axis=1)))
    actions = ["keep"] * len(jobs)
    left, units = nodes, int(least[:, nodes].argmin())
    for at in range(len(jobs) - 1, -1, -1):
        low, by_kill, by_saving = chosen[at]
        if left == 0:
            break
        if _bit(by_saving, units, left - low):
            actions[at] = "checkpoint"
            units -= costs[at]
        elif _bit(by_kill, units, left - low):
            actions[at] = "kill"
        else:
            continue
        left = max(0, left - jobs[at].nodes)
    return actions


def _after(least: Any, freed: int, low: int, seen: int) -> Any:
    """The losses of the states from which freeing so many nodes leads to those of ``low`` to ``seen`` nodes; a copy."""
    out = np.empty((len(least), max(0, seen - low + 1)))
    full = max(0, min(freed, seen) - low + 1)
    out[:, :full] = least[:, :1]
    out[:, full:] = least[:, max(low - freed, 1) : max(seen - freed + 1, 1)]
    return out


def _bit(rows: Any, units: int, state: int) -> bool:
    return state // 8 < rows.shape[1] and bool(rows[units, state // 8] >> (7 - state % 8) & 1)


def greedy(jobs: Sequence[Job], nodes: int, deadline: float, bandwidth: float) -> Plan:
    """What a simple rule does: the jobs that lose the least for each node go first.

    A job is checkpointed while there are bytes for it, else killed; jobs that were not needed in the end are kept, the
    largest loss first. Raises InvalidArgument, naming the field.
    """
    check(jobs, nodes, deadline, bandwidth)
    order = sorted(range(len(jobs)), key=lambda at: jobs[at].since_last_checkpoint)
    return _in_order(jobs, [(at, True) for at in order], nodes, deadline, bandwidth)


def _cheapest_saved(jobs: Sequence[Job], nodes: int, deadline: float, bandwidth: float) -> Plan:
    """Another rule: those with the fewest bytes a node are checkpointed while it is possible, then the least loss a node goes."""
    order = sorted(range(len(jobs)), key=lambda at: jobs[at].bytes / jobs[at].nodes)
    left, saved = deadline * bandwidth, []
    for at in order:
        if jobs[at].remaining > deadline and jobs[at].bytes <= left:
            left -= jobs[at].bytes
            saved.append(at)
    others = sorted(set(order).difference(saved), key=lambda at: jobs[at].since_last_checkpoint)
    return _in_order(jobs, [(at, True) for at in saved] + [(at, False) for at in others], nodes, deadline, bandwidth)


def _in_order(
    jobs: Sequence[Job], order: Sequence[tuple[int, bool]], nodes: int, deadline: float, bandwidth: float
) -> Plan:
    """Jobs make way in this order, and are checkpointed where that is wanted and possible, until there are enough nodes."""
    actions = _first(jobs, deadline)
    left = nodes - sum(job.nodes for job, action in zip(jobs, actions) if action == "ends")
    budget = deadline * bandwidth
    for at, wanted in order:
        if left <= 0:
            break
        if actions[at] == "ends":
            continue
        saved = wanted and jobs[at].bytes <= budget
        actions[at] = "checkpoint" if saved else "kill"
        budget -= jobs[at].bytes if saved else 0
        left -= jobs[at].nodes
    killed = [at for at, action in enumerate(actions) if action == "kill"]
    for at in sorted(killed, key=lambda at: -jobs[at].unsaved):
        if left + jobs[at].nodes <= 0:
            actions[at] = "keep"
            left += jobs[at].nodes
    return _plan(jobs, actions)


def curve(jobs: Sequence[Job], nodes: int, deadlines: Sequence[float], bandwidth: float) -> list[Plan]:
    """The plan for each deadline: what more time saves."""
    return [decide(jobs, nodes, deadline, bandwidth) for deadline in deadlines]
