"""A time stepper that takes a snapshot every 10 steps and runs on meanwhile; later it goes back to one of them.

Each snapshot stores the parts of the field that the wave has reached since the one before.
"""

import numpy as np

import ebbtide

STEPS, EVERY, CELLS = 200, 10, 1 << 19  # 4 MiB a field


def advance(now: np.ndarray, before: np.ndarray, step: int) -> None:
    reach = slice(CELLS // 2 - 200 * (step + 1), CELLS // 2 + 200 * (step + 1))  # where the wave is
    inside = now[reach]
    curvature = np.roll(inside, 1) - 2 * inside + np.roll(inside, -1)
    inside[:], before[reach] = 2 * inside - before[reach] + 0.25 * curvature, inside.copy()


def main() -> None:
    now, before = np.zeros(CELLS), np.zeros(CELLS)
    now[CELLS // 2] = 1
    sums = {}
    with ebbtide.open(device_cache="16MiB", host_cache="64MiB", disk="256MiB") as store:
        store.protect({"now": now, "before": before})
        for step in range(STEPS):
            if step % EVERY == 0:
                store.snapshot(step)  # as it is now; it is copied while the loop goes on
                sums[step] = now.sum()
            advance(now, before, step)

        field = store.restore(100, keep=True)["now"]
        assert field.sum() == sums[100]  # the same bytes
        stored = sum(store.info(step)["bytes"] for step in sums)
        print(f"{len(sums)} snapshots of {(now.nbytes + before.nbytes) >> 20} MiB take {stored >> 20} MiB")

        store.restore(50, out={"now": now, "before": before})  # and on from there
        assert now.sum() == sums[50]


if __name__ == "__main__":
    main()
