"""Findings as a table for a person and as plain values for a program."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import ebbtide

from .finding import Finding, Level

_MARKS = {
    Level.ok: "[green]ok[/green]",
    Level.note: "[yellow]note[/yellow]",
    Level.change: "[bold red]change[/bold red]",
}

Sections = dict[str, list[Finding]]


def table(sections: Sections) -> Table:
    """Everything that was found."""
    out = Table(title=f"ebbtide {ebbtide.__version__} on this machine", title_justify="left", show_header=False)
    out.add_column(no_wrap=True)
    out.add_column()
    out.add_column()
    for title, findings in sections.items():
        out.add_row("", f"[bold]{escape(title)}[/bold]", "")
        for finding in findings:
            out.add_row(_MARKS[finding.level], escape(finding.name), escape(finding.text))
        out.add_section()
    return out


def show(console: Console, sections: Sections) -> None:
    """The table, then what to do about it."""
    console.print(table(sections))
    wanting = [finding for findings in sections.values() for finding in findings if finding.level is not Level.ok]
    if not wanting:
        console.print("Nothing to change.")
    for finding in wanting:
        console.print(f"{_MARKS[finding.level]}: {escape(finding.name)}: {escape(finding.advice)}", soft_wrap=True)


def document(sections: Sections, can_open: bool, seconds: float) -> dict[str, Any]:
    """The same for a program."""
    return {
        "ebbtide": ebbtide.__version__,
        "can_open": can_open,
        "seconds": seconds,
        "sections": {title: [finding.as_json() for finding in findings] for title, findings in sections.items()},
    }
