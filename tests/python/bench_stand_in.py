"""What the benchmark's tests share: a tiny shot, rates that cost nothing, and a GPU made of ordinary memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ebbtide.bench import copies, rates
from ebbtide.bench.config import Config
from ebbtide.bench.device import Cpu

COUNT = 12


class StandInGpu(Cpu):
    """Is asked for as a GPU and behaves as one; the store beneath it has none."""

    on_gpu = True


def tiny_config(directory: Path, **changed: Any) -> Config:
    fields = {
        "sizes": ((1 << 16,) * COUNT,),
        "order": "reverse",
        "hints": "all",
        "interval": 0.0,
        "device_cache": 1 << 18,
        "host_cache": 1 << 18,
        "disk": 1 << 24,
        "directory": directory,
        "wait": False,
        "policy": "score",
        "prefetch": "manual",
        "coupling": "free",
        "verify": True,
        "seed": 0,
    }
    return Config(**(fields | changed))


def some_rates(config: Config, copy_in: float = 5e9) -> rates.Rates:
    """As `rates.measure` gives them, without measuring."""
    file = rates.FileRate(1e9, 2, 1 << 20, True) if config.disk else None
    if config.on_gpu:
        return rates.Rates(copies.DeviceCopies(config.median_size(), 1e-5, 2e-5, 5e10, 5e10, 9e10), file, file)
    return rates.Rates(copies.HostCopies(copy_in, 5e9, 8e9), file, file)
