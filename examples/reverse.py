"""An adjoint: a forward pass that stores two fields a step, a backward pass that reads them in reverse.

The caches hold an eighth of the history; the rest goes to disk and comes back.
"""

import numpy as np

import ebbtide

STEPS, SHAPE = 64, (256, 512)  # 1 MiB a field, 2 MiB a checkpoint, 128 MiB in all


def advance(position: np.ndarray, velocity: np.ndarray) -> None:
    velocity -= 0.01 * position
    position += 0.01 * velocity


def main() -> None:
    state = {"position": np.random.default_rng(1).random(SHAPE), "velocity": np.zeros(SHAPE)}
    sums = []
    with ebbtide.open(device_cache="4MiB", host_cache="12MiB", disk="256MiB") as store:
        with store.history("adjoint", order="reverse") as history:
            for step in range(STEPS):
                history.checkpoint(step, state)
                sums.append(state["position"].sum())
                advance(**state)
            for step in reversed(range(STEPS)):
                history.restore(step, out=state)
                assert state["position"].sum() == sums[step]  # the same bytes
        stats = store.stats()
    for tier in stats["tiers"]:
        print(f"{tier['name']:8} found {tier['hits']:3} of {STEPS} restores waiting")


if __name__ == "__main__":
    main()
