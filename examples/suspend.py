"""A job that makes way when the scheduler asks for it, and goes on when it is started again.

Run it, send it SIGTERM (`kill PID`, or `ebbtide suspend PID`), run it again: it goes on behind the last step that it wrote.
docs/hpc.md has the batch script for Slurm.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

import ebbtide

STEPS = 200


def advance(field: np.ndarray, step: int) -> np.ndarray:
    return 0.5 * field + step  # your computation


def main(directory: Path) -> None:
    with ebbtide.open(directory, durability="storage", keep_last=3) as store:
        if store.suspended is not None:
            print("the last run was suspended")
            store.clear_suspended()
        store.suspend_on(signal.SIGTERM, within=50)  # less than the scheduler's grace period
        newest = store.latest()
        field = np.zeros(1 << 17) if newest is None else store.restore(newest)
        try:
            for step in range(0 if newest is None else newest + 1, STEPS):
                field = advance(field, step)
                store.checkpoint(step, field)
                print(f"step {step} of process {os.getpid()}", flush=True)
        except ebbtide.Suspended:
            print(f"suspended behind step {store.versions()[-1]}")
            return
    print(f"the result is {field.mean():.6f}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "suspended-run"))
