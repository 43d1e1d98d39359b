"""docs/papers.md's chapter of measured figures, from benches/results/papers."""

from __future__ import annotations

import statistics
import textwrap
from typing import Any

from ebbtide.bench.paper import FIGURES, show


def page(documents: dict[str, dict[str, Any]]) -> str:
    """documents: those that were measured, by figure. They come in the order of `--list`."""
    return "\n".join(line for key in FIGURES if key in documents for line in _figure(documents[key]))


def _figure(document: dict[str, Any]) -> list[str]:
    names = show.titles(document)
    behind = _behind(document)
    return [
        f"### {document['figure']}: {document['what']}",
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
    command = f"`ebbtide bench paper {document['figure']} --{document['scale']}`"
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
