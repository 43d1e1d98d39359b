"""Plans and runs as documents, and as tables for a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ebbtide._units import format_size, format_time

from .bound import least_unrounded
from .decision import ACTIONS, Plan, curve, decide, greedy, in_units
from .jobs import Job
from .machine import POLICIES, Machine, run
from .workload import Arrival

Table = tuple[str, list[str], list[list[str]]]  # title, heads, rows
_FACTORS = (0.125, 0.25, 0.5, 1, 2, 4, 8)  # of the deadline
_SHOWN = 20


def plan_document(jobs: Sequence[Job], nodes: int, deadline: float, bandwidth: float) -> dict[str, Any]:
    """Node-seconds, seconds and bytes."""
    plan = decide(jobs, nodes, deadline, bandwidth)
    deadlines = [factor * deadline for factor in _FACTORS]
    return {
        "nodes": nodes,
        "deadline": deadline,
        "bandwidth": bandwidth,
        "plan": _numbers(plan),
        "in_units": _numbers(in_units(jobs, nodes, deadline, bandwidth)),
        "greedy": _numbers(greedy(jobs, nodes, deadline, bandwidth)),
        "least": least_unrounded(jobs, nodes, deadline, bandwidth),
        "jobs": [asdict(job) | {"action": action} for job, action in zip(jobs, plan.actions)],
        "curve": [
            {"deadline": at} | _numbers(one) for at, one in zip(deadlines, curve(jobs, nodes, deadlines, bandwidth))
        ],
    }


def _numbers(plan: Plan) -> dict[str, Any]:
    counts = {action: plan.actions.count(action) for action in ACTIONS}
    return {"lost": plan.lost, "freed": plan.freed, "bytes": plan.bytes, "actions": counts}


def plan_tables(document: dict[str, Any]) -> list[Table]:
    """The jobs that make way, and what more or less time would cost."""
    going = [job for job in document["jobs"] if job["action"] != "keep"]
    rows = [
        [
            job["name"],
            str(job["nodes"]),
            format_time(job["since_last_checkpoint"]),
            format_size(int(job["bytes"])),
            job["action"],
        ]
        for job in going[:_SHOWN]
    ]
    if len(going) > _SHOWN:
        rows.append([f"and {len(going) - _SHOWN} more", "", "", "", ""])
    jobs = ("Jobs that make way", ["job", "nodes", "not saved", "checkpoint", "action"], rows)
    over = [
        [format_time(one["deadline"]), _hours(one["lost"]), *(str(one["actions"][name]) for name in ACTIONS[1:])]
        for one in document["curve"]
    ]
    return [jobs, ("By deadline", ["deadline", "node-hours lost", "killed", "checkpointed", "ended"], over)]


def plan_lines(document: dict[str, Any]) -> list[str]:
    """What the plan costs, beside what the rule and the bound say."""
    lost, least = document["plan"]["lost"], document["least"]
    return [
        f"{document['plan']['freed']} nodes within {format_time(document['deadline'])}: {_hours(lost)} node-hours of work are "
        f"lost; {_hours(document['greedy']['lost'])} if the jobs that lose least a node go first",
        f"in 32 units of the file system's time: {_hours(document['in_units']['lost'])}; no plan loses less than "
        f"{_hours(least)}: the gap is at most {_hours(max(0.0, lost - least))}",
    ]


def run_document(arrivals: Sequence[Arrival], machine: Machine) -> dict[str, Any]:
    """Each policy over the same workload."""
    return {
        "machine": asdict(machine),
        "jobs": len(arrivals),
        "policies": {policy: asdict(run(arrivals, machine, policy)) for policy in POLICIES},
    }


def run_table(document: dict[str, Any]) -> Table:
    """A row a policy."""
    heads = ["policy", "lost (node-h)", "stood still (node-h)", "in time", "mean wait", "others' mean wait", "busy"]
    rows = [
        [
            policy,
            f"{one['lost']:.1f}",
            f"{one['blocked']:.1f}",
            f"{100 * one['in_time']:.0f}%",
            f"{one['wait']:.0f} s",
            f"{one['batch_wait']:.0f} s",
            f"{100 * one['busy']:.1f}%",
        ]
        for policy, one in document["policies"].items()
    ]
    count = document["policies"]["planned"]["on_demand"]
    return (f"{document['jobs']} jobs, {count} of them on demand, on {document['machine']['nodes']} nodes", heads, rows)


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f}"
