"""The demo's words and numbers: what it says before, the tables at its end, and the same as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from rich.table import Table

from .._units import format_rate, format_size, format_time
from .job import REPLAY_PART, Job, Room, tier_bytes
from .migration import TimedHistory
from .replay import DiskRates, Outcome, Pace

#: What people call the tiers, and what the buffered files go to.
PLACES = {
    "device": "device cache",
    "host": "host cache",
    "local": "disk",
    "page cache": "page cache",
}


def plan_text(job: Job, room: Room) -> str:
    """What is about to be done, in a few lines."""
    survey = job.survey
    cells = job.true.shape[-1], *job.true.shape[1:-1], job.true.shape[0]  # along x, across it, down
    lengths = " x ".join(f"{count * survey.spacing / 1000:g}" for count in cells)
    cached = (room.device + room.host) / job.shot_bytes
    return (
        f"model     {lengths} km, {' x '.join(map(str, cells))} cells of {survey.spacing:g} m, "
        f"{survey.border} more of absorbing border on every side\n"
        f"waves     on {job.device.name}: {len(survey.source_columns)} shots, {survey.steps} steps of {survey.dt * 1e3:.2f} ms a pass, "
        f"Ricker wavelet of {survey.peak_frequency:g} Hz\n"
        f"history   {survey.checkpoints} checkpoints of {format_size(job.checkpoint_bytes)} a shot "
        f"({survey.group} snapshots each, every {survey.every} steps): {format_size(job.shot_bytes)}\n"
        f"store     device cache {format_size(room.device)}, host cache {format_size(room.host)} "
        f"({cached:.1%} of a shot together), disk {format_size(room.disk)} in {room.directory}"
    )


def migration_table(histories: list[TimedHistory], seconds: float, stats: dict[str, Any]) -> Table:
    """What the store did during the migration."""
    moved = tier_bytes(stats)
    out = Table(title="Migration through the store", show_header=False, title_justify="left")
    out.add_column(no_wrap=True)
    out.add_column(justify="right")
    saved, loaded = (sum(sum(getattr(h, name)) for h in histories) for name in ("save_s", "load_s"))
    out.add_row("whole run", format_time(seconds))
    out.add_row("  of it in checkpoint calls", format_time(saved))
    out.add_row("  of it in restore calls", format_time(loaded))
    out.add_row("checkpoints written, restored", f"{stats['checkpoints']}, {stats['restores']}")
    for tier in stats["tiers"]:
        to, out_of = moved.get(tier["name"], (0, 0))
        out.add_row(f"{PLACES[tier['name']]}: bytes to, from", f"{format_size(to)}, {format_size(out_of)}")
        out.add_row("  restores that found it here", str(tier["hits"]))
    return out


def replay_title(pace: Pace, rates: DiskRates) -> str:
    """What was replayed, and how fast."""
    return (
        f"One shot again: {pace.count} checkpoints of {format_size(pace.size)}, one every {format_time(pace.interval)} "
        f"({REPLAY_PART:.0%} of the disk's {format_rate(rates.slower)})"
    )


def replay_table(rates: DiskRates, outcomes: list[Outcome]) -> Table:
    """What each way kept the program waiting for, and the bytes that it moved."""
    out = Table(
        caption=f"the disk before, as the doctor measures it: wrote {format_rate(rates.write)}, read {format_rate(rates.read)}",
        caption_justify="left",
    )
    out.add_column("", no_wrap=True)
    for one in outcomes:
        out.add_column(one.name + (f"\n[dim]({one.note})[/dim]" if one.note else ""), justify="right")
    rows: dict[str, Callable[[Outcome], str]] = {
        "blocked, writing": lambda one: format_time(one.write_blocked_s),
        "blocked, reading": lambda one: format_time(one.read_blocked_s),
        "[bold]blocked in all[/bold]": lambda one: f"[bold]{format_time(sum(one.blocked_s))}[/bold]",
        "  of its run": lambda one: f"{sum(one.blocked_s) / one.wall_s:.1%}",
        "  worst call": lambda one: format_time(max(one.blocked_s)),
        "bytes wrong": lambda one: str(one.wrong_bytes),
    }
    for heading, cell in rows.items():
        out.add_row(heading, *map(cell, outcomes))
    out.add_section()
    for tier, place in PLACES.items():
        for direction, which in (("to", 0), ("from", 1)):
            moved = [one.tier_bytes[tier][which] if tier in one.tier_bytes else None for one in outcomes]
            if any(moved):
                out.add_row(f"bytes {direction} {place}", *("-" if m is None else format_size(m) for m in moved))
    return out


def as_json(job: Job, room: Room, histories: list[TimedHistory], stats: dict[str, Any]) -> dict[str, Any]:
    """The job, the room that it had, and each call's time."""
    survey = job.survey
    return {
        "config": {
            "device": job.device.name,
            "shape": list(job.true.shape),
            "spacing_m": survey.spacing,
            "steps": survey.steps,
            "dt_s": survey.dt,
            "peak_frequency_hz": survey.peak_frequency,
            "shots": len(survey.source_columns),
            "steps_per_snapshot": survey.every,
            "snapshots_per_checkpoint": survey.group,
            "checkpoints_per_shot": survey.checkpoints,
            "checkpoint_bytes": job.checkpoint_bytes,
            "device_cache": room.device,
            "host_cache": room.host,
            "disk": room.disk,
            "directory": str(room.directory),
        },
        "migration": {
            "checkpoint_blocked_s": [h.save_s for h in histories],
            "restore_blocked_s": [h.load_s for h in histories],
            "tier_bytes": tier_bytes(stats),
            "stats": stats,
        },
    }


def replay_json(pace: Pace, rates: DiskRates, outcomes: list[Outcome]) -> dict[str, Any]:
    """The replay: its pace, the disk's rates, and each call's time."""
    return {
        "pace": asdict(pace),
        "disk_bytes_per_s": asdict(rates),
        "ways": [one.as_json() for one in outcomes],
    }
