"""docs/papers.md's chapter of measured figures, from benches/results/papers."""

from __future__ import annotations

import statistics
import textwrap
from typing import Any

from ebbtide.bench.paper import FIGURES, show


def page(documents: list[dict[str, Any]]) -> str:
    """documents: those that were measured. They come in the order of `--list`, on processors before on a GPU."""
    order = {key: number for number, key in enumerate(FIGURES)}
    documents = sorted(documents, key=lambda one: (order[one["figure"]], one["machine"].get("gpu", "")))
    return "\n".join(line for document in documents for line in _figure(document))


def _figure(document: dict[str, Any]) -> list[str]:
    names = show.titles(document)
    behind = _behind(document)
    where = f", {document['machine']['gpu']}" if "gpu" in document["machine"] else ""
    return [
        f"### {document['figure']}: {document['what']}{where}",
        "",
        textwrap.fill(_words(document), 120, break_on_hyphens=False),
        "",
        "| " + " | ".join(names) + " |",
        "|---" * len(names) + "|",
        *("| " + " | ".join(line) + " |" for line in show.lines(document)),
        "",
        *([f"Slower than the best peer: {'; '.join(behind)}.", ""] if behind else []),
    ]


def _words(document: dict[str, Any]) -> str:
    """What the paper says, what is another experiment here, and how it was measured."""
    how = "the same on any machine"
    if not document.get("computed"):
        counts = [len(row.get("values") or row["turns"]) for row in document["rows"]]
        turns = f"medians of {statistics.median(counts):.0f} turns" if max(counts) > 1 else "one turn"
        machine = document["machine"]
        how = f"{machine['cpus']} processors, load {machine['load']:.1f} before, {turns}"
    device = " --device cuda" if "gpu" in document["machine"] else ""
    command = f"`ebbtide bench paper {document['figure']} --{document['scale']}{device}`"
    unit = f" In the table: {document['y']}." if "y" in document else ""
    return f"The paper: {document['paper']}. Here: {document['differs']}; {how}, {command}.{unit}"


def _behind(document: dict[str, Any]) -> list[str]:
    """Where the store blocked the program for longer than the best peer did."""
    if "y" in document:
        return []
    return [
        f"{place} ({over})"
        for place, peer, _, _, over, _ in show.lines(document)
        if peer == "score" and over and float(over) > 1
    ]
