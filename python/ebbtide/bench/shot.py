"""`ebbtide bench shot`: the papers' benchmark, with the least blocked time that any schedule could have reached."""

from __future__ import annotations

import os
import platform
import random
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from . import model, rates
from .rank import Job, Outcome
from .ranks import run_all
from .units import format_size

DRIFT = 0.10  # a raw rate that changed by more during a run makes the run doubtful
_PAGE = 4096
_SLACK = 64 << 20  # room on the disk tier beyond the history itself


@dataclass(frozen=True)
class Config:
    """A run, complete: what the command line says with every default filled in."""

    sizes: tuple[tuple[int, ...], ...]  # [rank][version], bytes
    order: str
    hints: str
    interval: float
    device_cache: int
    host_cache: int
    disk: int  # a rank; 0: no such tier
    directory: Path
    wait: bool
    policy: str
    prefetch: str
    coupling: str
    verify: bool
    seed: int
    trace: str | None = None

    @property
    def ranks(self) -> int:
        return len(self.sizes)

    @property
    def checkpoints(self) -> int:
        return len(self.sizes[0])

    def restore_order(self) -> tuple[int, ...]:
        """The versions as they are read back; every rank's are alike, as those of one shot over several GPUs."""
        forward = list(range(self.checkpoints))
        if self.order == "reverse":
            forward.reverse()
        elif self.order == "irregular":
            random.Random(self.seed).shuffle(forward)
        return tuple(forward)

    def history(self) -> int:
        """Bytes of the rank that writes most."""
        return max(map(sum, self.sizes))

    def as_json(self) -> dict:
        fields = asdict(self) | {"directory": str(self.directory), "ranks": self.ranks, "checkpoints": self.checkpoints}
        sizes = fields.pop("sizes")
        alike = len({size for rank in sizes for size in rank}) == 1
        return fields | {
            "size": sizes[0][0] if alike else None,
            "sizes": None if alike else sizes,
            "restore_order": self.restore_order(),
        }


def scratch_directory(given: Path | None) -> Path:
    """Where the files go: `given`, else `$EBBTIDE_DIR`, `$TMPDIR`, `/tmp`, as the store itself chooses."""
    return given or Path(os.environ.get("EBBTIDE_DIR") or tempfile.gettempdir())


def disk_for(sizes: list[tuple[int, ...]]) -> int:
    """A disk tier that holds the whole history of any rank, so that `--wait` can end."""
    return max(sum(-(-size // _PAGE) * _PAGE for size in rank) for rank in sizes) + _SLACK


def jobs(config: Config) -> list[Job]:
    order = config.restore_order()
    store = {
        "directory": str(config.directory),
        "device_cache": config.device_cache,
        "host_cache": config.host_cache,
        "disk": config.disk,
        "eviction": config.policy,
        "prefetch": config.prefetch,
    }
    return [
        Job(rank, sizes, order, config.hints, config.interval, config.wait, config.verify, store)
        for rank, sizes in enumerate(config.sizes)
    ]


def measure(config: Config) -> rates.Rates:
    """The machine's bare rates for checkpoints like these."""
    sizes = sorted(size for rank in config.sizes for size in rank)
    cache = config.device_cache or config.host_cache or sizes[-1]
    directory = config.directory if config.disk else None
    return rates.measure(sizes[len(sizes) // 2], cache, config.interval, directory, config.history())


def run(config: Config, say: Callable[[str], None] = lambda text: None) -> dict:
    """Runs the shot (twice if the machine drifted) and returns its document (docs/bench.md). `say` gets progress."""
    say("measuring the bare machine")
    before = measure(config)
    for attempt in (1, 2):
        say(f"shot: {config.ranks} x {config.checkpoints} checkpoints, {format_size(config.history())} a rank")
        outcomes = run_all(jobs(config), config.coupling == "tight")
        say("measuring the bare machine again")
        after = measure(config)
        drift = rates.drift(before, after)
        worst = max(drift, key=lambda name: abs(drift[name]))
        steady = abs(drift[worst]) <= DRIFT
        if not steady:
            told = f"the bare {worst} rate changed by {drift[worst]:+.0%} during the run"
            say(f"{told}; running once more" if attempt == 1 else f"{told} again: take its figures with care")
        if steady or attempt == 2:
            machine = {
                "before": before.as_json(),
                "after": after.as_json(),
                "drift": drift,
                "steady": steady,
                "repeated": attempt == 2,
                "how": {"copy": rates.HOW_COPY, "file": rates.HOW_FILE},
                "cpus": os.cpu_count(),
                "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            }
            say("computing the bound and the prediction")
            return document(config, machine, outcomes, rates.mean(before, after))
        before = after
    raise AssertionError


def document(config: Config, machine: dict, outcomes: list[Outcome], bare: dict[str, float]) -> dict:
    """The JSON document; lists hold rank after rank."""
    bound, predicted = model.expect(config, outcomes, bare)
    return {
        "config": config.as_json(),
        "machine": machine,
        "checkpoint": {"blocked_s": [s for out in outcomes for s in out.checkpoint_s]},
        "restore": {
            "blocked_s": [s for out in outcomes for s in out.restore_s],
            "found_on": [tier for out in outcomes for tier in out.found_on],
            "prefetch_distance": [n for out in outcomes for n in out.prefetch_distance],
        },
        "total": {
            "blocked_s": sum(sum(out.checkpoint_s) + sum(out.restore_s) for out in outcomes),
            "wall_s": max(out.ended for out in outcomes) - min(out.started for out in outcomes),
        },
        "open_s": max(out.open_s for out in outcomes),
        "flush_wait_s": max(out.flush_wait_s or 0.0 for out in outcomes),
        "bound": bound,
        "predicted": predicted,
        "verified": {
            "restores": sum(out.restores for out in outcomes),
            "wrong": sum(out.wrong for out in outcomes),
            "wrong_bytes": sum(out.wrong_bytes for out in outcomes),
        },
        "slept": {
            "forward_s": [s for out in outcomes for s in out.slept_forward_s],
            "backward_s": [s for out in outcomes for s in out.slept_backward_s],
            "barrier_s": sum(out.barrier_s for out in outcomes),
            "hint_s": sum(out.hint_s for out in outcomes),
        },
        "stats": [out.stats for out in outcomes],
    }
