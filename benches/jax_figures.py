"""docs/jax.md's chapter of measured figures, from benches/results."""

from __future__ import annotations

import textwrap
from typing import Any

from comparison_figures import spread


def page(on_processors: dict[str, Any], large: dict[str, Any], kept: dict[str, Any], on_gpu: dict[str, Any]) -> str:
    """kept: as ``large``, where malloc keeps the memory that it frees."""
    gpu = on_gpu["measured"]["jax"]
    paragraphs = [
        "The states of `adjoint` go through host memory. What that costs, in runs of `benches/gradients.py`: the gradient by "
        "`adjoint`, and by `lax.scan` of `jax.checkpoint(step)`, which computes as much and has all states in memory (medians, with "
        "the fastest and the slowest).",
        "| | a state | a step | `adjoint`, s | `jax.checkpoint`, s | difference, ms a step |\n|---|---|---|---|---|---|\n"
        + row(processors(on_processors), on_processors)
        + row(processors(large), large)
        + row(processors(kept), kept)
        + row(gpu["device"], on_gpu).rstrip(),
        f"Over `lax.scan` with all in memory, `adjoint` takes {over_scan(on_processors)} with the smaller states, and "
        f"{over_scan(large)} with those above 32 MiB, whose copies cost new memory at each step ([why](#the-gradient-of-many-steps)): "
        f"{over_scan(kept)} where malloc keeps that memory.",
        "So on a GPU `adjoint` is for steps that take much longer than the difference, or for histories that GPU memory does not "
        f"hold: each state goes to the host and back, at {rate(gpu) / 1e9:.1f} GB/s each way.",
    ]  # fmt: skip
    return "\n".join(
        (text if text[0] == "|" else textwrap.fill(text, 120, break_on_hyphens=False)) + "\n" for text in paragraphs
    )


def processors(document: dict[str, Any]) -> str:
    machine, stencils = document["machine"], document["measured"]["jax"]["stencils"]
    load = f"load {machine['load_before']:.1f} to {machine['load_after']:.1f}"
    kept = ", malloc keeps memory" if machine.get("malloc") else ""
    return f"{machine['cpus']} processors, {load}; {stencils} stencil{'s' if stencils > 1 else ''} a step{kept}"


def over_scan(document: dict[str, Any]) -> str:
    seconds = document["measured"]["jax"]["seconds"]
    ratios = [a / b for a, b in zip(seconds["adjoint"], seconds["scan"])]
    return f"{spread(ratios)} times as long"


def row(name: str, document: dict[str, Any]) -> str:
    found = document["measured"]["jax"]
    ours, theirs = (found["seconds"][way] for way in ("adjoint", "checkpoint of a step"))
    step = f"{1e3 * found['step_s']:.2g} ms"
    return f"| {name} | {found['state_bytes'] >> 20} MiB | {step} | {spread(ours)} | {spread(theirs)} | {spread(differences(found))} |\n"


def differences(found: dict[str, Any]) -> list[float]:
    """Milliseconds a step, of the runs that were taken in turns."""
    seconds = found["seconds"]
    return [1e3 * (a - b) / found["steps"] for a, b in zip(seconds["adjoint"], seconds["checkpoint of a step"])]


def rate(found: dict[str, Any]) -> float:
    """Bytes a second each way, if going and coming take as long as each other."""
    ordered = sorted(differences(found))
    return 2 * found["state_bytes"] / (1e-3 * ordered[len(ordered) // 2])
