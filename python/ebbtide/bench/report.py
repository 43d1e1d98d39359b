"""A shot's document as a table for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from rich.markup import escape
from rich.table import Table

from .._units import format_rate, format_size, format_time, mean, median
from .plot import restored_bytes


def table(document: dict) -> Table:
    """A shot's figures, with the bound and the prediction."""
    config, bound, predicted = document["config"], document["bound"], document["predicted"]
    total, slept = document["total"], document["slept"]
    intervals = sum(slept["forward_s"]) + sum(slept["backward_s"])
    excess = total["blocked_s"] - bound["blocked_s"]
    history = restored_bytes(config).sum()

    out = Table(title=_title(config), show_header=False, title_justify="left")
    out.add_column(justify="left", no_wrap=True)
    out.add_column(justify="right")
    for name in ("checkpoint", "restore"):
        blocked = document[name]["blocked_s"]
        out.add_row(f"{name}s blocked", f"{format_time(sum(blocked))} = {format_rate(history / sum(blocked))}")
        out.add_row("  median, worst of one", f"{format_time(median(blocked))}, {format_time(max(blocked))}")
        if bare := document[name]["bare_copy_s"]:
            out.add_row(
                "  a bare copy amid the traffic", f"{format_time(bare)}; blocked, mean: {mean(blocked) / bare:.2f}"
            )
    out.add_row("blocked in all", format_time(total["blocked_s"]))
    out.add_row("  least possible (bound)", format_time(bound["blocked_s"]))
    out.add_row("  predicted by the simulator", format_time(predicted["blocked_s"]))
    out.add_row("  above the bound, of intervals + bound", f"{excess / (intervals + bound['blocked_s']):.2%}")
    out.add_row("restores found on", _found(document["restore"]["found_on"]))
    out.add_row("prefetch distance, mean", f"{mean(document['restore']['prefetch_distance']):.1f}")
    out.add_section()
    out.add_row("whole shot", format_time(total["wall_s"]))
    out.add_row("computing (slept), of one rank", format_time(intervals / config["ranks"]))
    out.add_row("open; wait for flushes", f"{format_time(document['open_s'])}; {format_time(document['flush_wait_s'])}")
    out.add_row("processors busy with the runtime", f"{document['host_cpu']['cores']:.2f}")
    out.add_section()
    for when in ("before", "after"):
        out.add_row(f"bare rates {when}", _bare(document["machine"][when]))
    if not document["machine"]["steady"]:
        drift = ", ".join(f"{name} {change:+.0%}" for name, change in document["machine"]["drift"].items())
        out.add_row("[bold]the machine drifted[/bold]", drift)
    if config["verify"]:
        verified = document["verified"]
        wrong = f"[bold red]{verified['wrong']} wrong[/bold red]" if verified["wrong"] else "none wrong"
        out.add_row("verified, every byte", f"{verified['restores']} restores, {wrong}")
    return out


def peers(document: dict) -> Table:
    """A row for each peer, of the median of its turns; blocked times also over the best of those that are not the store and
    keep all that they are given."""
    rows = document["rows"]
    cold = "files read from the disk" if document["config"]["cold"] else "files may be in free memory"
    repeats = document["config"]["repeats"]
    turns = f"; medians of {repeats}, by turns" if repeats > 1 else ""
    out = Table(title=f"{_title(document['config'])}; {cold}{turns}", title_justify="left", caption_justify="left")
    for name in ("", "blocked", "x best peer", "x bound", "checkpoints", "restores", ""):
        out.add_column(name, justify="right" if name else "left", no_wrap=True)

    def middle(row: dict, field: str) -> float:
        return median([turn[field] for turn in row["turns"]])

    def wrong(row: dict) -> int:
        return sum(turn["wrong"] for turn in row["turns"])

    rivals = [row for row in rows if not (row["ours"] or row["failed"] or wrong(row)) and row["stores"]]
    best = min((middle(row, "blocked_s") for row in rivals), default=None)
    for row in rows:
        if row["failed"]:
            out.add_row(row["peer"], *[""] * 5, "[red]failed[/red]")
            continue
        blocked, bound = middle(row, "blocked_s"), middle(row, "bound_s")
        out.add_row(
            row["peer"],
            format_time(blocked),
            f"{blocked / best:.2f}" if best else "",
            f"{blocked / bound:.2f}" if bound else "",
            *(format_time(middle(row, name)) for name in ("checkpoint_s", "restore_s")),
            f"[bold red]{wrong(row)} wrong[/bold red]" if wrong(row) else "" if row["stores"] else "keeps less",
        )
    out.caption = "\n".join(f"{row['peer']}: {escape(row['failed'])}" for row in rows if row["failed"])
    return out


def by_rank(document: dict) -> Table:
    """How long each rank was blocked, and the bytes that went each way between the program, the tiers and what is borrowed."""
    total = document["total"]["moved_bytes"]
    out = Table(title="bytes by route, and time blocked", title_justify="left")
    for name in ("", "all", *(f"rank {rank}" for rank in range(len(document["ranks"])))):
        out.add_column(name, justify="right" if name else "left", no_wrap=True)

    def row(name: str, all_of: float, each: list[float], text: Callable[[Any], str]) -> None:
        out.add_row(name, text(all_of), *map(text, each))

    for name in ("checkpoint", "restore"):
        each = [rank[f"{name}_s"] for rank in document["ranks"]]
        row(f"{name}s blocked", sum(each), each, format_time)
    if document["config"]["lend"]:
        each = [rank["borrowed_bytes"] for rank in document["ranks"]]
        row("borrowed", sum(each), each, format_size)
    out.add_section()
    for route, count in total.items():
        row(route, count, [rank["moved_bytes"].get(route, 0) for rank in document["ranks"]], format_size)
    return out


def _title(config: dict) -> str:
    size = format_size(config["size"]) if config["size"] else config["trace"] or "sizes of a trace"
    ranks = f"{config['ranks']} ranks, {config['coupling']}, each " if config["ranks"] > 1 else ""
    caches = f"device {format_size(config['device_cache'])}, host {format_size(config['host_cache'])}"
    lent = f", lent {format_size(config['lend'])}" if config["lend"] else ""
    shared = f", shared {config['shared']}" if config["shared"] else ""
    device = "" if config["device"] == "cpu" else f"{config['device']}: "
    return (
        f"{device}{ranks}{config['checkpoints']} x {size}, {config['order']}, hints {config['hints']}, "
        f"{format_time(config['interval'])}, {'wait' if config['wait'] else 'no wait'}, {config['policy']}; {caches}{lent}{shared}"
    )


def _found(found_on: list[str | None]) -> str:
    count = Counter(tier or "no tier yet" for tier in found_on)
    return ", ".join(f"{tier} {number}" for tier, number in count.most_common())


def _bare(rates: dict) -> str:
    if "device_copy_s" in rates:
        text = f"device copy {format_time(rates['device_copy_s'])}, D2H {format_rate(rates['d2h_bytes_s'])}, "
        text += f"H2D {format_rate(rates['h2d_bytes_s'])}, both {format_rate(rates['both_bytes_s'])}"
    else:
        text = f"copy in {format_rate(rates['copy_in'])}, out {format_rate(rates['copy_out'])}"
    for way in ("write", "read", "shared_write", "shared_read"):
        if rates[way]:
            text += f"; {way.replace('_', ' ')} {format_rate(rates[way]['bytes_per_s'])} (depth {rates[way]['depth']})"
    return text
