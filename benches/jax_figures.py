"""docs/jax.md's chapter of measured figures, from benches/results."""

from __future__ import annotations

import textwrap
from typing import Any

from comparison_figures import spread


def page(gradients: dict[str, Any], on_gpu: dict[str, Any]) -> str:
    machine, found, link = gradients["machine"], gradients["measured"]["jax"], on_gpu["activations"]
    seconds, size, steps = found["seconds"], found["state_bytes"], found["steps"]
    pairs = zip(seconds["adjoint"], seconds["checkpoint of a step"])
    through_host = [1e3 * (ours - theirs) / steps for ours, theirs in pairs]
    crossing = 1e3 * (size / link["d2h_bytes_per_s"] + size / link["h2d_bytes_per_s"])
    paragraphs = [
        f"One run of `benches/gradients.py` on {machine['cpus']} processors ({machine['cpu']}; load {machine['load_before']:.1f} "
        f"before and {machine['load_after']:.1f} after; `benches/results/gradients.json`), with {steps} steps of "
        f"{1e3 * found['step_s']:.0f} ms and a state of {size >> 20} MiB: the gradient took {spread(seconds['adjoint'])} s by "
        f"`adjoint`, and {spread(seconds['checkpoint of a step'])} s by `lax.scan` of `jax.checkpoint(step)`, which computes as "
        f"much and has all states in memory. So the way through the host into the store and back cost {spread(through_host)} ms "
        "a step (medians, with the fastest and the slowest).",
        f"On a GPU the state also crosses the link to the host and back. At the rates of pinned copies of an {on_gpu['machine']['gpu']} "
        f"({link['d2h_bytes_per_s'] / 1e9:.0f} and {link['h2d_bytes_per_s'] / 1e9:.0f} GB/s, `benches/results/torch_gpu.json`) "
        f"{size >> 20} MiB take no less than {crossing:.2g} ms a step. `adjoint` itself was not measured on a GPU.",
    ]
    return "\n".join(textwrap.fill(text, 120, break_on_hyphens=False) + "\n" for text in paragraphs)
