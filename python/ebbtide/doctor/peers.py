"""The matrix of GPUs: which of them may use which other one's memory, and how fast."""

from __future__ import annotations

from typing import Any

from .._units import format_rate
from .finding import Finding, change, note, ok

_LINKS = "nvidia-smi topo -m shows how the GPUs are linked; bytes go to the memory of others over NVLink alone"
_DAMAGED = (
    "peer copies lose bytes here, in every program: look for ACS and the IOMMU in the BIOS and on the kernel's command"
    " line, and let no program use them until they are switched off (for NCCL: NCCL_P2P_DISABLE=1)"
)


def findings(gpus: int, links: list[dict[str, Any]]) -> list[Finding]:
    """A row for each GPU, from its ordered pairs."""
    if gpus < 2:
        return [ok("peers", "none: there is one GPU" if gpus else "none: there is no GPU")]
    rows: dict[int, list[dict[str, Any]]] = {}
    for link in links:
        rows.setdefault(link["from"], []).append(link)
    return [row(gpu, rows[gpu]) for gpu in sorted(rows)]


def row(gpu: int, links: list[dict[str, Any]]) -> Finding:
    """What one GPU reaches."""
    used = [f"cuda:{link['to']} {format_rate(link['store'])}, {format_rate(link['load'])}"
            for link in links if link["usable"]]  # fmt: skip
    refused = [f"cuda:{link['to']} not used: {link['reason']}" for link in links if not link["usable"]]
    name, text = f"cuda:{gpu} to and from", "; ".join([*used, *refused])
    if any(link["damaged"] for link in links):
        return change(name, text, _DAMAGED, pairs=links)
    if refused:
        return note(name, text, _LINKS, pairs=links)
    return ok(name, text, pairs=links)
