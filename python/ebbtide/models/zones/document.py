"""The modes of snapshots on programs, as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ebbtide.sim.zones import MODES, ZoneHardware, ZonePattern, ZoneProgram, run_zones, zone_patterns

Document = dict[str, Any]
OPTIMIZED = "NB+I-FG+H+D"  # with all that the paper adds


def patterns_document(memory: int, hardware: ZoneHardware, modes: tuple[str, ...] = MODES) -> Document:
    """``document`` of the known patterns, each in ``memory`` bytes."""
    return document(
        {name: (pattern, ZoneProgram.of_pattern(pattern, memory)) for name, pattern in zone_patterns().items()},
        hardware,
        modes,
    )


def document(
    programs: Mapping[str, tuple[ZonePattern | None, ZoneProgram]],
    hardware: ZoneHardware,
    modes: tuple[str, ...] = MODES,
) -> Document:
    """By program: its pattern, its memory, and by mode what ``run_zones`` says and three ratios.

    ``relative``: the time that is lost, over that of F (figures 10 and 11). ``speedup``: the time of a full copy at the whole
    rate of the link, over the time that is lost, which is taken as a round trip at least. ``share``: bytes stored, over those
    of the memory.
    """
    found: Document = {"hardware": asdict(hardware), "modes": list(modes), "programs": {}}
    for name, (pattern, program) in programs.items():
        full = run_zones("F", program, hardware)
        rows = {}
        for mode in modes:
            one = full if mode == "F" else run_zones(mode, program, hardware)
            rows[mode] = {
                **asdict(one),
                "relative": one.lost_s / full.lost_s,
                "speedup": program.memory / hardware.link_rate / max(one.lost_s, hardware.round_trip),
                "share": one.written / program.memory,
            }
        found["programs"][name] = {
            "pattern": None if pattern is None else asdict(pattern),
            "memory": program.memory,
            "modes": rows,
        }
    return found
