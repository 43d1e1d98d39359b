"""docs/trainers.md's chapter of measured figures, from benches/results."""

from __future__ import annotations

import statistics
import textwrap
from typing import Any

WAYS = {
    "the callback": "the callback",
    "the manager": "`ebbtide.torch.Manager.save` of model and optimizer alone",
    "the trainer's own save": "the trainer's own save",
    "AsyncCheckpointIO": "`AsyncCheckpointIO`",
}
BARS = {"over the manager": "over the manager's", "over their own": "over the trainer's own"}


def page(measured: dict[str, Any]) -> str:
    machine = measured["machine"]
    rows = {row["figure"]: row["values"] for row in measured["rows"]}
    cells = [
        f"| {trainer} | {title} | {_spread(rows[f'{trainer}: {way}'])} |"
        for trainer in ("Lightning", "Transformers")
        for way, title in WAYS.items()
        if f"{trainer}: {way}" in rows
    ]
    ratios = [
        f"| {trainer} | {' | '.join(_spread(rows[f'{trainer}: {bar}']) for bar in BARS)} |"
        for trainer in ("Lightning", "Transformers")
    ]
    text = (
        f"One run of `benches/trainers.py` on {machine['cpus']} processors (load {machine['load_before']:.1f} before, "
        f"{machine['load_after']:.1f} after; `benches/results/trainers.json`): how long training is blocked by a save of "
        f"{measured['bytes']['Lightning'] / 2**20:.0f} MiB (Lightning {machine['lightning']}) and "
        f"{measured['bytes']['Transformers'] / 2**20:.0f} MiB (Transformers {machine['transformers']}) of weights and AdamW's state. "
        "All ways take turns within one run; medians, and the fastest and the slowest. What the trainers' own saves write is given "
        "to the system, and not synced."
    )
    if max(machine["load_before"], machine["load_after"]) > machine["cpus"]:
        text += " Other programs kept the processors busy meanwhile: all ways waited for them, and the spread says for how long."
    return "\n".join(
        [
            textwrap.fill(text, 120, break_on_hyphens=False),
            "",
            "| | | blocked, ms |",
            "|---|---|---|",
            *cells,
            "",
            "The callback's time over that of the others, save by save:",
            "",
            f"| | {' | '.join(BARS.values())} |",
            "|---|---|---|",
            *ratios,
            "",
        ]
    )


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"
