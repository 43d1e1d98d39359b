"""The experiments of sc22's slides: what GPUs cannot hold, sent to the host or to one another. (What the
slides show of foreknowledge is in hpdc23.)"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

from .figure import Labels, Place, Scale, Values

STEPS = 64
FREE = 128 << 20  # of each GPU, as on the slides
SIMULATED = (
    f"{STEPS} steps of a trace that is generated, in place of the recorded one; `ebbtide sim spill --trace` takes any"
)


def _document(place: Place):
    from ... import _traces as traces
    from ...models.spill import steps
    from ...sim import Topology

    return steps.trace_document(Topology.dgx1v(), traces.make_trace(STEPS, 8, place.seed), FREE, 1_000_000)


def _overheads(scale: Scale, place: Place, say: Callable[[str], None]) -> Iterator[tuple[Labels, float]]:
    for strategy, over in _document(place)["over_flow"].items():
        if strategy != "flow":
            yield {"strategy": strategy}, 100 * over["in_all"]


def _ratios(scale: Scale, place: Place, say: Callable[[str], None]) -> Iterator[tuple[Labels, float]]:
    for strategy, over in _document(place)["over_flow"].items():
        yield {"strategy": strategy}, over["mean_ratio"]


def _decisions(scale: Scale, place: Place, say: Callable[[str], None]) -> Iterator[tuple[Labels, float]]:
    for strategy, microseconds in _document(place)["decision_us"].items():
        yield {"strategy": strategy}, statistics.median(microseconds)


FIGURES = {
    "19": Values(
        "time that GPUs are blocked over the least, by how they send what they cannot hold",
        "400% more to the host alone, 97% more greedily (slide 19)",
        SIMULATED,
        "strategy",
        "over the least time (%)",
        _overheads,
        computed=True,
    ),
    "20": Values(
        "time of a decision, by how GPUs send what they cannot hold",
        "about 90 µs for the least time (slide 20)",
        SIMULATED,
        "strategy",
        "decision (µs)",
        _decisions,
    ),
    "21": Values(
        "time that GPUs are blocked over the least, the mean of steps",
        "8 times to the host alone, twice greedily (slide 21)",
        SIMULATED,
        "strategy",
        "times the least",
        _ratios,
        computed=True,
    ),
}
