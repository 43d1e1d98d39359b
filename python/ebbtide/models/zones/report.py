"""The document of document.py for a person: tables and a picture."""

from __future__ import annotations

from .document import Document

_COLOURS = ("#1f5fa8", "#c8321e", "#d98a1f", "#2f855a")
_PANELS = (
    ("figure 10: without D", ("I", "NB+I", "NB+F+H", "NB+I+H"), 1.0),
    ("figure 11: with D", ("NB+I+H", "NB+F+H+D", "NB+I+H+D", "NB+I-FG+H+D"), 0.4),
)


def tables(document: Document) -> dict[str, tuple[list[str], list[list[str]]]]:
    """By title: the heads of the columns, and the rows."""
    modes = [mode for mode in document["modes"] if mode != "F"]

    def rows(key: str, digits: int) -> list[list[str]]:
        return [
            [name, *(f"{program['modes'][mode][key]:.{digits}f}" for mode in modes)]
            for name, program in document["programs"].items()
        ]

    return {
        "Time lost, over that of F": (["program", *modes], rows("relative", 3)),
        "Bytes stored, over those of memory": (["program", *modes], rows("share", 2)),
    }


def patterns_table(document: Document) -> tuple[list[str], list[list[str]]]:
    """What the programs write."""
    heads = ["program", "what it writes", "dirty", "of each zone", "again", "order", "pace"]
    out = []
    for name, program in document["programs"].items():
        pattern = program["pattern"]
        if pattern is None:
            continue
        shares = (f"{100 * pattern[key]:.3g}%" for key in ("dirty", "filled", "reuse"))
        out.append([name, pattern["says"], *shares, pattern["order"], f"{pattern['pace'] / 1e9:g} GB/s"])
    return heads, out


def picture(document: Document) -> str:
    """The paper's figures 10 and 11, one above the other, as SVG: bars by program and mode."""
    programs = {
        name: one for name, one in document["programs"].items() if not (one["pattern"] or {}).get("adversarial")
    }
    width, height, step = 900, 560, 820 / max(1, len(programs))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="Helvetica, Arial, sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
    ]

    def text(x: float, y: float, words: str, anchor: str = "middle") -> None:
        lines.append(f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="#223344">{words}</text>')

    for top, (title, modes, most) in zip((20, 300), _PANELS):
        text(50, top + 4, f"time lost over that of F, {title}", "start")
        low = top + 210
        for quarter in range(5):
            y = low - 45 * quarter
            lines.append(f'<line x1="50" y1="{y}" x2="880" y2="{y}" stroke="#d8dee6"/>')
            text(44, y + 4, f"{most * quarter / 4:g}", "end")
        for column, (mode, colour) in enumerate(zip(modes, _COLOURS)):
            x = 420 + 118 * column
            lines.append(f'<rect x="{x}" y="{top - 7}" width="11" height="11" fill="{colour}"/>')
            text(x + 15, top + 4, mode, "start")
            for row, one in enumerate(programs.values()):
                tall = 180 * min(1, one["modes"][mode]["relative"] / most)
                left = 60 + step * row + column * step / 5
                lines.append(
                    f'<rect x="{left:.1f}" y="{low - tall:.1f}" width="{step / 6:.1f}" height="{tall:.1f}" fill="{colour}"/>'
                )
        for row, name in enumerate(programs):
            text(60 + step * (row + 0.4), low + 18, name)
    return "\n".join([*lines, "</svg>"]) + "\n"
