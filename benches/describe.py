#!/usr/bin/env python3
"""What it costs to describe a training state of 1,000 small tensors, processor time of the calling thread: the first
save, and each later one, which compares the state with that description.

benches/describe.py                                # writes benches/results/describe.json
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness
import torch
from ebbtide.torch._described import Described

LAYERS = 100  # of two tensors each, and three more for each of them in the optimizer
ROUNDS = 30  # for each repeat, of which the fastest counts


def a_state() -> dict[str, Any]:
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(LAYERS)))
    opt = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.ones(1, 8)).sum().backward()
    opt.step()
    more = [torch.ones(8) for _ in range(200)]
    return {"model": model.state_dict(), "opt": opt.state_dict(), "more": more}


def fastest(work: Callable[[], Any]) -> float:
    found = []
    for _ in range(ROUNDS):
        start = time.thread_time()
        work()
        found.append(time.thread_time() - start)
    return min(found)


def main() -> None:
    parser = harness.options(__doc__ or "", repeats=7)
    parser.set_defaults(json=harness.RESULTS / "describe.json")
    given = parser.parse_args()
    machine = harness.machine(given.dir) | {"torch": torch.__version__}
    torch.set_num_threads(1)
    state, described = a_state(), Described()
    tensors = len(described.dump(state)[0]["arrays"])
    first, later = [], []
    for _ in range(given.repeats):
        first.append(fastest(lambda: Described().dump(state)))
        later.append(fastest(lambda: described.dump(state)))
    machine["load_after"] = os.getloadavg()[0]
    rows = [
        harness.told(f"describing {tensors} tensors", first, " ms", per=1e-3),
        harness.Row(f"comparing {tensors} tensors", "at most 1 ms", [1e3 * one for one in later], harness.at_most(1), " ms"),
    ]  # fmt: skip
    print(harness.table(rows))
    found = {
        "figure": "describe",
        "command": [Path(__file__).name, "--repeats", str(given.repeats)],
        "machine": machine,
        "tensors": tensors,
        "rows": [row.as_json() for row in rows],
    }
    harness.leave(found, given.json)


if __name__ == "__main__":
    main()
