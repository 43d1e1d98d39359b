# needs torch
"""A training that continues where it ended: parameters, optimizer, random numbers and progress, one checkpoint a step.

Run it, kill it at any moment with `kill -9`, run it again: the losses that it prints are those of an uninterrupted run.
"""

import json
import sys
from pathlib import Path

import torch

import ebbtide

STEPS = 60


def pack(model: torch.nn.Module, optimizer: torch.optim.Optimizer, progress: dict) -> dict[str, torch.Tensor]:
    """The whole state as one flat dict of tensors, with everything else as text."""
    arrays = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    for number, slots in optimizer.state_dict()["state"].items():
        arrays |= {f"optimizer/{number}/{slot}": tensor for slot, tensor in slots.items()}
    arrays["random"] = torch.get_rng_state()
    arrays["progress"] = torch.frombuffer(bytearray(json.dumps(progress).encode()), dtype=torch.uint8)
    return arrays


def unpack(arrays: dict[str, torch.Tensor], model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict:
    """Restores it; returns the progress."""
    model.load_state_dict({name.removeprefix("model/"): a for name, a in arrays.items() if name.startswith("model/")})
    state = optimizer.state_dict()
    for name, tensor in arrays.items():
        if name.startswith("optimizer/"):
            _, number, slot = name.split("/")
            state["state"].setdefault(int(number), {})[slot] = tensor
    optimizer.load_state_dict(state)
    torch.set_rng_state(arrays["random"])
    return json.loads(arrays["progress"].numpy().tobytes())


def main(directory: Path) -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with ebbtide.open(directory, durability="storage", keep_last=3, keep_every=25, device="cpu") as store:
        newest = store.latest()  # complete and intact; None: a first run
        progress = {"epoch": 0, "losses": []} if newest is None else unpack(store.restore(newest), model, optimizer)
        for step in range(0 if newest is None else newest + 1, STEPS):
            batch = torch.randn(32, 64)
            loss = (model(batch).squeeze(-1) - batch.sum(1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            progress["epoch"] = step // 20
            progress["losses"].append(round(loss.item(), 4))
            store.checkpoint(
                step, pack(model, optimizer, progress)
            )  # costs a copy; the disk is written in the background
            if step % 10 == 9:
                store.wait("storage")
                print(f"step {step} is durable", flush=True)
    print("the losses are", progress["losses"])


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "training-run"))
