"""A figure's rows as a table and as a picture with the paper's axes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.markup import escape
from rich.table import Table

from ... import _plots
from ..._units import format_rate, median

COLOURS = ("#1f5fa8", "#6fa3d8", "#12395f", "#d98a1f", "#c8321e", "#5a8f4e", "#8a6fb0", "#777777")


_FIGURES = ("checkpoints", "restores", "x best", "x bound")


def rates(row: dict) -> dict[str, float]:
    """Bytes/s that the program saw of a row, by name; medians of its turns. ``bound``: of the least time that was possible."""
    moved = row["bytes"]
    return {
        "checkpoint": median([moved / turn["checkpoint_s"] for turn in row["turns"]]),
        "restore": median([moved / turn["restore_s"] for turn in row["turns"]]),
        "both": median([2 * moved / turn["blocked_s"] for turn in row["turns"]]),
        "bound": median([2 * moved / turn["bound_s"] for turn in row["turns"]]),
    }


def lines(document: dict) -> list[tuple[str, ...]]:
    """Of values: a line for each place off the axis, and the medians along the axis. Of shots: of each row its place and peer, and the figures: blocked time also over that of the best peer at the same place, and
    over the least that was possible. A row that failed has that word in place of them."""
    if "y" in document:
        columns, found = _along(document), _series(document)
        return [
            (name, *(f"{values[at]:.3g}" if at in values else "" for at in columns)) for name, values in found.items()
        ]
    out: list[tuple[str, ...]] = []
    for row in document["rows"]:
        place = (", ".join(row["labels"].values()), row["peer"])
        if not row["turns"]:
            out.append((*place, "failed", "", "", ""))
            continue
        found, best = rates(row), _best_peer(document["rows"], row)
        wrong = sum(turn["wrong"] for turn in row["turns"])
        out.append(
            (
                *place,
                format_rate(found["checkpoint"]),
                f"{wrong} wrong" if wrong else format_rate(found["restore"]),
                f"{best / found['both']:.2f}" if best and row["ours"] else "",
                f"{found['bound'] / found['both']:.2f}",
            )
        )
    return out


def titles(document: dict) -> tuple[str, ...]:
    """Of the columns of `lines`."""
    if "y" in document:
        return ", ".join(name for name in document["rows"][0]["labels"] if name != document["x"]), *_along(document)
    return ", ".join(document["rows"][0]["labels"]) if document["rows"] else "", "", *_FIGURES


def _along(document: dict) -> list[str]:
    """What there is along the axis."""
    return list(dict.fromkeys(row["labels"][document["x"]] for row in document["rows"]))


def _series(document: dict) -> dict[str, dict[str, float]]:
    """By place off the axis, and by place along it: the medians of values."""
    out: dict[str, dict[str, float]] = {}
    for row in document["rows"]:
        name = ", ".join(value for key, value in row["labels"].items() if key != document["x"]) or document["y"]
        out.setdefault(name, {})[row["labels"][document["x"]]] = median(row["values"])
    return out


def table(document: dict) -> Table:
    """For a terminal."""
    how = document.get("y", document["scale"])
    out = Table(title=f"{document['figure']}: {document['what']}; {how}", title_justify="left")
    out.caption_justify = "left"
    if "y" in document:
        first, *others = titles(document)
        out.add_column(first, overflow="fold")
        for name in others:
            out.add_column(name, justify="right", overflow="fold", min_width=5)
    else:
        for name in titles(document):
            out.add_column(name, justify="right" if name in _FIGURES else "left", no_wrap=True)
    for line in lines(document):
        out.add_row(*line, style="red" if "failed" in line or any("wrong" in cell for cell in line) else "")
    failed = [row for row in document["rows"] if row.get("failed")]
    caption = [f"the paper: {document['paper']}", f"here: {document['differs']}"]
    caption += [f"{', '.join([*row['labels'].values(), row['peer']])}: {escape(row['failed'])}" for row in failed]
    out.caption = "\n".join(caption)
    return out


def _best_peer(rows: list[dict], of: dict) -> float:
    """Bytes/s of the best at the same place. What makes nothing of hints has one row for all of them."""
    same = {name: value for name, value in of["labels"].items() if name != "hints"}
    found = [
        rates(row)["both"]
        for row in rows
        if not row["ours"] and row["turns"] and same.items() <= row["labels"].items()
        if not any(turn["wrong"] for turn in row["turns"])
        if row["labels"]["hints"] in (of["labels"]["hints"], "none")
    ]
    return max(found, default=0.0)


def plot(document: dict, path: Path) -> None:
    """Draws the rows that were measured."""
    if "y" in document:
        _values(document, path)
        return
    rows = [row for row in document["rows"] if row["turns"]]
    _iterations(rows, document, path) if document["by_iteration"] else _bars(rows, document, path)


def _values(document: dict, path: Path) -> None:
    """Groups along the axis, in each a bar for each place off it."""
    along, found = _along(document), _series(document)
    figure = _plots.figure(11, 5)
    axes = figure.subplots()
    width = 0.85 / len(found)
    for number, (name, values) in enumerate(found.items()):
        places = [along.index(at) + (number - (len(found) - 1) / 2) * width for at in values]
        axes.bar(places, list(values.values()), width, color=COLOURS[number % len(COLOURS)], label=name)
    axes.set_xticks(range(len(along)), along)
    axes.set_xlabel(document["x"])
    axes.set_ylabel(document["y"])
    axes.grid(alpha=0.25, axis="y")
    axes.set_axisbelow(True)
    figure.suptitle(f"{document['figure']}: {document['what']}", fontsize=11)
    if len(found) > 1:
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    _plots.save(figure, path)


def _bars(rows: list[dict], document: dict, path: Path) -> None:
    """Groups along the axis, in each a bar for each peer and what else names it; a mark at what was possible at most."""
    along = document["x"]

    def name(row: dict) -> str:
        return ", ".join([row["peer"], *(f"{key} {value}" for key, value in row["labels"].items() if key != along)])

    groups = list(dict.fromkeys(row["labels"][along] for row in rows))
    names = list(dict.fromkeys(map(name, rows)))
    figure = _plots.figure(11, 7)
    for axes, which in zip(figure.subplots(2, 1, sharex=True), ("checkpoint", "restore")):
        for row in rows:
            number = names.index(name(row))
            at = groups.index(row["labels"][along]) + (number - (len(names) - 1) / 2) * 0.85 / len(names)
            label = name(row) if row["labels"][along] == groups[0] else None
            colour = COLOURS[number % len(COLOURS)]
            axes.bar(at, rates(row)[which] / 1e9, 0.85 / len(names), color=colour, edgecolor="white", label=label)
        _plots.logarithmic(axes)
        axes.set_ylabel(f"{which} (GB/s)")
        axes.set_xticks(range(len(groups)), groups)
        axes.grid(alpha=0.25, axis="y")
        axes.set_axisbelow(True)
    axes.set_xlabel(along)
    figure.suptitle(f"{document['figure']}: {document['what']}", fontsize=11)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    _plots.save(figure, path)


def _iterations(rows: list[dict], document: dict, path: Path) -> None:
    figure = _plots.figure(9, 6.5)
    rate, distance = figure.subplots(2, 1, sharex=True)
    for colour, row in zip(COLOURS[::3], rows):
        turn = row["turns"][-1]
        count = len(turn["restores_s"])
        label = ", ".join(f"{key} {value}" for key, value in row["labels"].items())
        per_restore = row["bytes"] / count / np.maximum(np.array(turn["restores_s"]), 1e-9) / 1e9
        rate.plot(range(count), per_restore, color=colour, linewidth=1.2, label=label)
        distance.step(range(count), turn["prefetch_distance"], color=colour, linewidth=1.2, where="mid")
    _plots.logarithmic(rate)
    rate.set_ylabel("restore rate (GB/s)")
    distance.set_ylabel("prefetch distance (checkpoints)")
    distance.set_xlabel("iteration of the backward pass")
    for axes in (rate, distance):
        axes.grid(alpha=0.25)
    figure.suptitle(f"{document['figure']}: {document['what']}", fontsize=11)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    _plots.save(figure, path)
