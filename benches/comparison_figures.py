"""The last chapters of docs/comparison.md, from what the benchmarks and the trials of reliability have left."""

from __future__ import annotations

import re
from typing import Any

DURABLE, BLOCKED = "time until durable: ", "time blocked: "
NAMES = {"ebbtide": "Ebbtide", "torch_save": "torch.save, synced and renamed", "dcp": "torch.distributed.checkpoint",
         "orbax": "Orbax", "safetensors": "safetensors, synced and renamed"}  # fmt: skip
GOOD, BAD = ("EXACT", "OLDER_EXACT", "CLEAR_ERROR"), ("SILENT_WRONG", "CRASH", "HANG")


def times(measured: dict[str, Any]) -> list[str]:
    """A row for each library that saved the same state in this run."""
    values = {row["figure"]: row["values"] for row in measured["rows"]}
    machine = measured["machine"]
    size = (
        int(measured["command"][measured["command"].index("--bytes") + 1])
        if "--bytes" in measured["command"]
        else 10**9
    )
    repeats = len(next(iter(values.values())))
    lines = [
        f"A state of {size / 1e9:g} GB, {repeats} times each, on {machine['cpus']} processors ({machine['cpu']}) with "
        f"{machine['file_system']}, load {machine['load_before']:.1f} before; medians, with the fastest and the slowest.",
        "",
        "| | the program is blocked, s | until durable, s |",
        "|---|---|---|",
    ]
    for figure in values:
        name = figure.removeprefix(DURABLE)
        if figure.startswith(DURABLE) and not name.endswith(" over ours"):
            lines.append(f"| {name} | {spread(values[BLOCKED + name])} | {spread(values[figure])} |")
    return lines


def spread(values: list[float]) -> str:
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:.3g} ({ordered[0]:.3g} to {ordered[-1]:.3g})"


def trials(found: dict[str, Any]) -> list[str]:
    """The trials that were made on others too: how many ended well, and how many did not."""
    subjects = found["subjects"]
    lines = [f"| trial | {' | '.join(NAMES[one] for one in subjects)} |", "|---" * (len(subjects) + 1) + "|"]
    for trial in found["trials"]:
        if len(trial["found"]) > 1:
            cells = [cell(trial["found"][one]["outcomes"]) if one in trial["found"] else "–" for one in subjects]
            lines.append(f"| {trial['title']} | {' | '.join(cells)} |")
    return lines


def cell(outcomes: dict[str, int]) -> str:
    well = sum(outcomes[one] for one in GOOD)
    wrong = [f"{outcomes[one]:,} {one}" for one in BAD if outcomes[one]]
    return ", ".join([f"{well:,} well", *wrong])


GRADIENTS = {
    "jax": {
        "scan": "`lax.scan`, with what it keeps of each step in memory",
        "adjoint": "`ebbtide.jax.adjoint`",
        "checkpoint of a step": "`lax.scan` of `jax.checkpoint(step)`: states in memory",
        "checkpoint of segments": "`lax.scan` of `jax.checkpoint` around segments",
    },
    "deepwave": {
        "in memory": 'gradient, `storage_mode="device"`: in memory',
        "disk": 'gradient, `storage_mode="disk"`',
        "offload": "gradient, `ebbtide.torch.offload` of checkpointed segments",
        "image": "image, `ebbtide.seismic.Wavefields` and `CrossCorrelation`",
    },
    "devito": {"pyrevolve's memory": "pyrevolve's memory", "Storage": "`ebbtide.seismic.Storage`"},
}


def gradients(document: dict[str, Any]) -> list[str]:
    """A table for each framework, of one run."""
    machine, found = document["machine"], document["measured"]
    jax, deepwave, devito = (found[name] for name in GRADIENTS)
    about = {
        "jax": f"JAX: {jax['steps']} steps of {1e3 * jax['step_s']:.0f} ms, with a state of {jax['state_bytes'] >> 20} MiB; "
        "memory that the compiled program allocates, beside the store's caches",
        "deepwave": f"deepwave: a shot of {deepwave['steps']} steps with {deepwave['stored_bytes'] / 1e6:.0f} MB of wavefields; "
        "files are dropped from the page cache between the passes, and the store's caches have room for a tenth",
        "devito": f"Devito: {devito['steps']} steps with {devito['slots']} slots of {devito['state_bytes'] / 1e6:.1f} MB",
    }
    lines = [
        f"One run of `benches/gradients.py` on {machine['cpus']} processors ({machine['cpu']}) with {machine['file_system']}, "
        f"load {machine['load_before']:.1f} before and {machine['load_after']:.1f} after, in turns; medians, with the fastest "
        "and the slowest.",
        "",
    ]
    for name, titles in GRADIENTS.items():
        memory = found[name].get("temporary_bytes")
        lines += [f"| {about[name]} | s |" + (" MB |" if memory else ""), "|---" * (3 if memory else 2) + "|"]
        for way, title in titles.items():
            of_memory = f" {memory[way] / 1e6:,.0f} |" if memory else ""
            lines.append(f"| {title} | {spread(found[name]['seconds'][way])} |{of_memory}")
        lines.append("")
    return lines


def page(
    state: dict[str, Any], torch_state: dict[str, Any], gradients_run: dict[str, Any], found: dict[str, Any]
) -> str:
    parts = [
        "### A state",
        "",
        *times(state),
        "",
        "The same with the manager for PyTorch, in another run:",
        "",
        *times(torch_state),
        "",
        "### Gradients",
        "",
        *gradients(gradients_run),
        "### Faults",
        "",
        "What came of faults, where they were tried on others ([Reliability](reliability.md) says what each is; well: exact, an "
        "older one exact, or a clear error):",
        "",
        *trials(found),
        "",
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))
