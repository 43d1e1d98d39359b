# needs torch
"""A training that continues where it ended: parameters, optimizer, random numbers and progress, one checkpoint a step.

Run it, kill it at any moment with `kill -9`, run it again: the losses that it prints are those of an uninterrupted run.
"""

import sys
from pathlib import Path

import torch

from ebbtide.torch import Manager

STEPS = 60


def main(directory: Path) -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with Manager(directory, keep_last=3, keep_every=25, device="cpu") as manager:
        first = manager.resume(model=model, optimizer=optimizer)  # the newest that is intact; 0: a first run
        losses = manager.values.get("losses", [])
        for step in range(first, STEPS):
            batch = torch.randn(32, 64)
            loss = (model(batch).squeeze(-1) - batch.sum(1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(round(loss.item(), 4))
            manager.step(step, losses=losses)  # costs a copy; the disk is written in the background
            if step % 10 == 9:
                manager.wait()
                print(f"step {step} is durable", flush=True)
    print("the losses are", losses)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "training-run"))
