"""The memory and disk that a store would use if it were opened with every size left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ebbtide
from ebbtide import _core

from .._units import format_size
from .finding import Finding, change, note, ok

_LITTLE = 1 << 30  # bytes of a host cache


def memory(limits: dict[str, Any] | None = None) -> Finding:
    """The available memory."""
    found: dict[str, Any] = _core.memory_limits() if limits is None else limits
    limit, left, ranks = found["cgroup"], found["cgroup_left"], found["local_ranks"]
    group = "no limit by a cgroup"
    if limit is not None:
        group = f"the cgroup's limit is {format_size(limit)}, {format_size(left)} of it left"
    shared = f", shared by {ranks} local ranks" if ranks > 1 else ""
    return ok("memory", f"{format_size(found['available'])} available, {group}{shared}", **found)


def sizes(directory: Path | None) -> tuple[list[Finding], bool]:
    """The default sizes, and whether a store can be opened with them at all."""
    options = {} if directory is None else {"directory": str(directory)}
    found: list[Finding] = []
    can_open = True
    try:
        plan = _core.planned(options)
    except ebbtide.Error as error:
        found.append(change("store", "cannot be opened here", str(error), reason=error.reason))
        can_open = False
        try:
            plan = _core.planned(options | {"disk": "0"})
        except ebbtide.Error:  # the disk is not the cause
            return found, can_open
    return [*found, judge(plan), fits(plan, _core.memory_limits())], can_open


def fits(plan: dict[str, Any], limits: dict[str, Any]) -> Finding:
    """Whether memory holds the planned caches once all of it is in use, for all processes of the job on this node."""
    in_memory = plan["host"] + (0 if plan["settings"].startswith("cuda:") else plan["device"])
    needed = in_memory * limits["local_ranks"]
    available, left = limits["available"], limits["cgroup_left"]
    most = available if left is None else min(available, left)
    whose = "is available" if most == available else "is left by the cgroup"
    text = f"{format_size(needed)} of memory when full, {format_size(most)} {whose}"
    values = {"needed": needed, "left": most}
    if needed <= most:
        return ok("room for the caches", text, **values)
    raised = "" if most == available else ", or raise the job's memory limit (memory.max, --mem, --memory)"
    each = format_size(most // limits["local_ranks"])
    advice = (
        f"have host_cache, and device_cache where there is no GPU, below {each} in all (EBBTIDE_HOST_CACHE=SIZE)"
        f"{raised}: beyond it a cache stops growing, or the kernel ends the program"
    )
    return change("room for the caches", text, advice, **values)


def judge(plan: dict[str, Any]) -> Finding:
    """A finding on the planned sizes."""
    device, host, local = (plan[tier] for tier in ("device", "host", "local"))
    disk = f"disk {format_size(local)}" if local else "no disk"
    text = f"device {format_size(device)}, host {format_size(host)}, {disk}"
    if 0 < local < host:
        advice = f"free space in {plan['directory']}: the disk tier is smaller than the host cache before it"
        return note("default sizes", text, advice, **plan)
    if host < _LITTLE:
        advice = "give the job more memory, or say how much may be taken: EBBTIDE_HOST_CACHE=SIZE, host_cache="
        return note("default sizes", text, advice, **plan)
    return ok("default sizes", text, **plan)
