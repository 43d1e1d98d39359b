"""docs/adjoint.md's chapter of measured figures, from benches/results."""

from __future__ import annotations

import textwrap
from typing import Any

from comparison_figures import spread

HEAD = (
    "| schedule | checkpoints to `RAM`, to `DISK` | by hand, s | `ebbtide.adjoint`, s | over by hand | over by hand with copies "
    "| processor time over by hand |"
)


def page(document: dict[str, Any]) -> str:
    machine, size = document["machine"], document["state_bytes"] >> 20
    before = (
        f"The gradient of a wave of {document['steps']} steps, {size} MiB a state, in a run of `benches/schedules.py` on "
        f"{machine['cpus']} processors (load {machine['load_before']:.1f} to {machine['load_after']:.1f}): the total time through "
        "`ebbtide.adjoint`, the store's opening and closing included, and with a storage written by hand: a dict for `RAM`, and "
        "`numpy.save` and `numpy.load` for `DISK`, through the page cache (medians, with the fastest and the slowest; bar: at most "
        "1). The dict keeps the states themselves, which these steps do not change, or copies. The store has the memory of "
        f"{document['in_ram']} states. All compute the same steps, to the same bits. A checkpoint in a dict that keeps the states "
        "costs nothing, so the fewer go to `DISK` the less there is to gain. Processor time counts the threads of the store too."
    )
    rows = "\n".join(map(row, document["measured"]))
    return f"{textwrap.fill(before, 120, break_on_hyphens=False)}\n\n{HEAD}\n|---|---|---|---|---|---|---|\n{rows}\n"


def row(found: dict[str, Any]) -> str:
    own, copied, store = (found["seconds"][way] for way in ("own", "own, copied", "store"))
    used = over(found["processor_s"]["store"], found["processor_s"]["own"])
    written = f"{found['writes']['RAM']}, {found['writes']['DISK']}"
    cells = [f"`{found['schedule']}`", written, *map(spread, (own, store, over(store, own), over(store, copied), used))]
    return f"| {' | '.join(cells)} |"


def over(ours: list[float], theirs: list[float]) -> list[float]:
    """Of runs that were taken in turns."""
    return [one / other for one, other in zip(ours, theirs)]
