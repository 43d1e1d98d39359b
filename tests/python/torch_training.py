"""A small training run, as a program that may be killed: DIRECTORY STEPS OUT [SECONDS A STEP].

It prints the step that it begins with, and a line when its first checkpoint is durable.
"""

from __future__ import annotations

import random
import sys
import time

import numpy as np
import torch

import ebbtide.torch


class Loader:
    """Batches in a shuffled order; its state says where in the epoch it is."""

    def __init__(self, data: torch.Tensor) -> None:
        self.data, self.order, self.at = data, list(range(len(data))), len(data)

    def __next__(self) -> torch.Tensor:
        if self.at == len(self.order):
            random.shuffle(self.order)
            self.at = 0
        self.at += 1
        return self.data[self.order[self.at - 1]]

    def state_dict(self) -> dict[str, object]:
        return {"order": list(self.order), "at": self.at}

    def load_state_dict(self, state: dict[str, object]) -> None:
        self.order, self.at = list(state["order"]), state["at"]


def train(directory: str, steps: int, seconds: float = 0.0, every: int = 2) -> torch.Tensor:
    torch.manual_seed(1), np.random.seed(2), random.seed(3)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.Dropout(0.3), torch.nn.BatchNorm1d(32), torch.nn.Linear(32, 1)
    )
    opt = torch.optim.AdamW(model.parameters(), lr=0.01)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 100)
    loader = Loader(torch.randn(7, 8, 16))
    noise = np.random.default_rng(5)
    with ebbtide.torch.Manager(directory, every=every, keep_last=2, best=("loss", 1), host_cache="64MiB") as manager:
        first = manager.resume(model=model, opt=opt, sched=sched, loader=loader, noise=noise)
        print(first, flush=True)
        saved: list[ebbtide.Future | None] = []
        told = False
        for step in range(first, steps):
            batch = next(loader) + np.random.rand() + noise.standard_normal()
            loss = model(batch).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            saved.append(manager.step(step, loss=loss.item()))
            if not told and any(future is not None and future.done("storage") for future in saved):
                told = True
                print("durable", flush=True)
            time.sleep(seconds)
    return torch.cat(
        [value.double().flatten() for value in model.state_dict().values()] + [torch.rand(3, dtype=torch.float64)]
    )


if __name__ == "__main__":
    result = train(sys.argv[1], int(sys.argv[2]), *map(float, sys.argv[4:]))
    torch.save(result, sys.argv[3])
