"""`ebbtide bench shot`: the papers' benchmark, with the least blocked time that any schedule could have reached."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Callable

from .._units import format_size, median
from . import model, rates
from .config import Config
from .disk import Around
from .lending import lenders
from .progress import Advance, nothing
from .rank import Job, Outcome
from .ranks import run_all

DRIFT = 0.10  # a raw rate that changed by more during a run makes the run doubtful


def jobs(config: Config, groups: list[str] | None = None, places: list[dict] | None = None) -> list[Job]:
    """One for each rank; groups: with whom each of them borrows; places: of `Config.own_directories`."""
    order = config.restore_order()
    return [
        Job(
            rank,
            sizes,
            order,
            config.hints,
            config.interval,
            config.wait,
            config.verify,
            config.store_options() | (places[rank] if places else {}),
            config.device,
            groups[rank] if groups else "",
        )
        for rank, sizes in enumerate(config.sizes)
    ]


def run(config: Config, say: Callable[[str], None] = lambda text: None, advance: Advance = nothing) -> dict:
    """Runs the shot (twice if the machine drifted) and returns its document (docs/bench.md). `say` gets progress;
    `advance` is called after each call of the first rank, if that runs in this process."""
    say("measuring the bare machine")
    before = rates.measure(config)
    for attempt in (1, 2):
        say(f"shot: {config.ranks} x {config.checkpoints} checkpoints, {format_size(config.history())} a rank")
        with lenders(config.device, config.ranks, config.lend) as groups, config.own_directories() as places:
            outcomes = run_all(jobs(config, groups, places), config.coupling == "tight", advance)
        say("measuring the bare machine again")
        after = rates.measure(config)
        worst, steady = drifted(before, after)
        if not steady:
            say(f"{worst}; running once more" if attempt == 1 else f"{worst} again: take its figures with care")
        if steady or attempt == 2:
            say("computing the bound and the prediction")
            return document(config, outcomes, before, after, repeated=attempt == 2)
        before = after
    raise AssertionError


def moved(outcomes: list[Outcome]) -> dict[str, int]:
    """Bytes by route ("device>peer"), of those over which any went."""
    total: Counter[str] = Counter()
    for out in outcomes:
        total.update({link["name"]: link["bytes"] for link in out.stats["links"]})
    return {route: count for route, count in total.items() if count}


def drifted(before: rates.Rates, after: rates.Rates) -> tuple[str, bool]:
    """What changed most, in words, and whether even that held still."""
    drift = rates.drift(before, after)
    worst = max(drift, key=lambda name: abs(drift[name]))
    return f"the bare {worst} rate changed by {drift[worst]:+.0%} during the run", abs(drift[worst]) <= DRIFT


def document(
    config: Config,
    outcomes: list[Outcome],
    before: rates.Rates,
    after: rates.Rates,
    repeated: bool = False,
    disk: Around | None = None,
) -> dict:
    """The JSON document; lists hold rank after rank. disk: what counts for the disk in place of `before` and `after`."""
    bare = rates.mean(before, after) | (disk.mean() if disk else {})
    bound, predicted = model.expect(config, outcomes, bare)
    return {
        "config": config.as_json(),
        "machine": {
            "before": before.as_json(),
            "after": after.as_json(),
            "drift": rates.drift(before, after),
            "steady": drifted(before, after)[1],
            "repeated": repeated,
            "how": before.how(),
            "disk": disk.as_json() if disk else None,
            "cpus": os.cpu_count(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        },
        "checkpoint": {
            "blocked_s": [s for out in outcomes for s in out.checkpoint_s],
            "bare_copy_s": median([s for out in outcomes for s in out.bare_forward_s]),
        },
        "restore": {
            "blocked_s": [s for out in outcomes for s in out.restore_s],
            "bare_copy_s": median([s for out in outcomes for s in out.bare_backward_s]),
            "found_on": [tier for out in outcomes for tier in out.found_on],
            "prefetch_distance": [n for out in outcomes for n in out.prefetch_distance],
        },
        "total": {
            "blocked_s": sum(sum(out.checkpoint_s) + sum(out.restore_s) for out in outcomes),
            "wall_s": max(out.ended - out.aside_s for out in outcomes) - min(out.started for out in outcomes),
            "moved_bytes": moved(outcomes),
        },
        "ranks": [
            {
                "checkpoint_s": sum(out.checkpoint_s),
                "restore_s": sum(out.restore_s),
                "borrowed_bytes": out.stats.get("leases", {}).get("borrowed", 0),
                "moved_bytes": moved([out]),
            }
            for out in outcomes
        ],
        "open_s": max(out.open_s for out in outcomes),
        "flush_wait_s": max(out.flush_wait_s or 0.0 for out in outcomes),
        "host_cpu": {"cores": max(out.cores for out in outcomes)},
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
