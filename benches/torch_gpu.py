#!/usr/bin/env python3
"""The helpers for PyTorch on a GPU, each beside its peers in one run: what a save of a training state blocks, and what it
costs to keep activations outside GPU memory; and how much longer a training step takes that begins with a save.

The state is one tensor a layer. A save is blocked until the program may write to its tensors again, and durable when its
bytes are on stable storage. Bare: a copy of all tensors to others on the GPU.
The model's activations are twice the store's device cache. Its step is timed with all in GPU memory, with `offload`, and
with torch's own `save_on_cpu(pin_memory=True)`. torchtune's `OffloadActivations` is left out: torchtune 0.6.1 imports what
torchao has not had since 0.16, and earlier ones are made for another torch. The bound: what has no room in the cache, over the rate of one pinned copy,
or the step itself, whichever takes longer.
A training step that begins with a save of the model and its optimizer is timed without the save, with `stage="now"` and
with `stage="lazy"`, until the program's stream has ended it.
A tensor that is not in C order is checkpointed as it is, and (the peer) as `contiguous()` makes it; until the stream is done.

  benches/torch_gpu.py --dir /mnt/disk --json benches/results/torch_gpu.json
  benches/torch_gpu.py --dir /mnt/disk --only saving_steps
  benches/torch_gpu.py --dir /mnt/disk --only strided
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ebbtide
import ebbtide.torch
import harness
import torch
import torch.distributed.checkpoint as dcp
from peers.base import sync_tree

State = dict[str, torch.Tensor]


def timed(work: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


# --- a state -------------------------------------------------------------------------------------------------------


def bare_copy(state: State) -> list[float]:
    others = {name: torch.empty_like(tensor) for name, tensor in state.items()}
    copy = functools.partial(torch._foreach_copy_, list(others.values()), list(state.values()))
    timed(copy)
    return [timed(copy) for _ in range(10)]


def ours(state: State, directory: Path, repeats: int) -> dict[str, list[float]]:
    size = sum(tensor.nbytes for tensor in state.values())
    room = size + (256 << 20)
    options = {"device": "cuda", "device_cache": room, "host_cache": room, "disk": 4 * room}
    with ebbtide.torch.Manager(directory, keep_last=1, **options) as manager:
        return saves(lambda step: manager.save(step, state=state), lambda step: manager.wait(), repeats)


def torch_save(state: State, directory: Path, repeats: int) -> dict[str, list[float]]:
    def save(step: int) -> None:
        torch.save(state, directory / "new")
        with (directory / "new").open("rb") as file:
            os.fsync(file.fileno())
        (directory / "new").rename(directory / "state")

    return saves(save, lambda step: None, repeats)


def dcp_async(state: State, directory: Path, repeats: int) -> dict[str, list[float]]:
    pending: list[Any] = []

    def save(step: int) -> None:
        pending.append(dcp.async_save(state, checkpoint_id=directory / "state", no_dist=True))

    def wait(step: int) -> None:
        pending.pop().result()
        sync_tree(directory / "state")

    return saves(save, wait, repeats)


def saves(begin: Callable[[int], Any], wait: Callable[[int], Any], repeats: int) -> dict[str, list[float]]:
    """The first is not counted: it touches and registers memory."""
    found: dict[str, list[float]] = {"blocked_s": [], "durable_s": []}
    for step in range(repeats + 1):
        os.sync()
        torch.cuda.synchronize()
        start = time.perf_counter()
        begin(step)
        torch.cuda.synchronize()  # of the copies that the next write has to wait for
        blocked = time.perf_counter() - start
        wait(step)
        if step:
            found["blocked_s"].append(blocked)
            found["durable_s"].append(time.perf_counter() - start)
    return found


# --- activations ---------------------------------------------------------------------------------------------------


def model_of(layers: int, width: int) -> torch.nn.Module:
    parts = [module for _ in range(layers) for module in (torch.nn.Linear(width, width, bias=False), torch.nn.GELU())]
    return torch.nn.Sequential(*parts).to("cuda", torch.bfloat16)


def steps(model: torch.nn.Module, x: torch.Tensor, keep: Callable[[], Any], repeats: int) -> list[float]:
    def step() -> None:
        model.zero_grad()
        with keep():
            loss = model(x).float().square().mean()
        loss.backward()

    for _ in range(3):
        step()
    return [timed(step) for _ in range(repeats)]


def link_rates() -> tuple[float, float]:
    pinned = torch.empty(256 << 20, dtype=torch.uint8, pin_memory=True)
    on_gpu = torch.empty_like(pinned, device="cuda")
    down = min(timed(lambda: pinned.copy_(on_gpu)) for _ in range(5))
    up = min(timed(lambda: on_gpu.copy_(pinned)) for _ in range(5))
    return pinned.nbytes / down, pinned.nbytes / up


def activations(layers: int, width: int, tokens: int, repeats: int) -> dict[str, Any]:
    model = model_of(layers, width)
    x = torch.randn(tokens, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    size = 2 * layers * x.nbytes  # a linear layer saves its input, and so does GELU
    found: dict[str, Any] = {
        "activation_bytes": size,
        "device_cache_bytes": size // 2,
        "layers": layers,
        "width": width,
    }
    found["d2h_bytes_per_s"], found["h2d_bytes_per_s"] = link_rates()
    found["in_memory_s"] = steps(model, x, contextlib.nullcontext, repeats)
    with ebbtide.open(device="cuda", device_cache=size // 2, host_cache=size, disk=0) as store:
        found["offload_s"] = steps(model, x, lambda keep=ebbtide.torch.offload(store): keep, repeats)
    found["save_on_cpu_s"] = steps(
        model, x, lambda: torch.autograd.graph.save_on_cpu(pin_memory=True), max(3, repeats // 3)
    )
    leaving = size - size // 2
    rest = leaving / found["d2h_bytes_per_s"] + leaving / found["h2d_bytes_per_s"]
    found["bound_s"] = max(statistics.median(found["in_memory_s"]), rest)
    return found


# --- a training step that begins with a save -------------------------------------------------------------------------


def saving_steps(layers: int, width: int, tokens: int, directory: Path, repeats: int) -> dict[str, Any]:
    model = model_of(layers, width)
    opt = torch.optim.AdamW(model.parameters(), 1e-5, fused=True)
    x = torch.randn(tokens, width, device="cuda", dtype=torch.bfloat16)

    def step(save: Callable[[], Any] = lambda: None) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        save()
        model(x).float().square().mean().backward()
        opt.step()
        opt.zero_grad()
        torch.cuda.current_stream().synchronize()  # a stream beside it may go on
        return time.perf_counter() - start

    for _ in range(3):
        step()
    tensors = [*model.parameters(), *(part for state in opt.state.values() for part in state.values())]
    size = sum(tensor.nbytes for tensor in tensors)
    found: dict[str, Any] = {"state_bytes": size, "layers": layers, "width": width, "tokens": tokens}
    found["plain_s"] = [step() for _ in range(3 * repeats)]
    room = size + (256 << 20)
    options: dict[str, Any] = {"device": "cuda", "device_cache": room, "host_cache": room, "disk": 4 * room}
    for stage in ("now", "lazy"):
        with ebbtide.torch.Manager(directory / stage, stage=stage, keep_last=1, **options) as manager:
            manager.resume(model=model, opt=opt)
            found[f"{stage}_s"] = []
            for number in range(repeats + 1):
                took = step(functools.partial(manager.save, number))
                manager.wait()
                if number:  # the first also pays for new memory
                    found[f"{stage}_s"].append(took)
    return found


# --- a tensor that is not in C order ---------------------------------------------------------------------------------


def strided(size: int, repeats: int) -> dict[str, Any]:
    side = 1 << (size // 4).bit_length() // 2
    wide = torch.randn(side, 2 * side, device="cuda")
    images = torch.randn(side // 64, 64, 8, side // 8, device="cuda")
    views = {
        "transposed": wide[:, :side].contiguous().t(),
        "channels_last": images.to(memory_format=torch.channels_last),
        "every other column": wide[:, ::2],
        "a block": wide[:, :side],
        "transposed, with gaps": wide[:, :side].t(),
    }
    found: dict[str, Any] = {}
    with ebbtide.open(device="cuda", device_cache=8 * wide.nbytes, host_cache=0, disk=0, warm=True) as store:
        for name, view in views.items():
            times: dict[str, list[float]] = {"ours_s": [], "contiguous_s": [], "bytes": [view.nbytes]}
            for turn in range(3 * repeats + 1):
                for way in ("ours_s", "contiguous_s"):
                    took = timed(lambda: store.checkpoint(0, view if way == "ours_s" else view.contiguous()))
                    store.drop(0)
                    if turn:  # the first loads kernels
                        times[way].append(took)
            found[name] = times
    return found


# --- all of it -----------------------------------------------------------------------------------------------------


def states(size: int, root: Path, repeats: int) -> dict[str, Any]:
    layers = 40
    state = {f"layer{i}": torch.randn(size // 4 // layers, device="cuda") for i in range(layers)}
    found: dict[str, Any] = {"bytes": size, "bare_copy_s": bare_copy(state)}
    torch.cuda.empty_cache()
    for way in (ours, torch_save, dcp_async):
        directory = root / way.__name__
        directory.mkdir()
        found[way.__name__] = way(state, directory, repeats if way is ours else 1)
        shutil.rmtree(directory)
    return found


def ratios(found: dict[str, Any]) -> dict[str, float]:
    median, out = statistics.median, {}
    if saved := found.get("state"):
        out["blocked over a bare device copy"] = median(saved["ours"]["blocked_s"]) / median(saved["bare_copy_s"])
        for what in ("blocked", "durable"):
            for way, title in (("torch_save", "torch.save"), ("dcp_async", "DCP async")):
                ours_s = median(saved["ours"][f"{what}_s"])
                out[f"{title} {what} over ours"] = median(saved[way][f"{what}_s"]) / ours_s
    if act := found.get("activations"):
        out["speed with offload over in memory"] = median(act["in_memory_s"]) / median(act["offload_s"])
        out["speed at the bound over in memory"] = median(act["in_memory_s"]) / act["bound_s"]
        out["save_on_cpu step over offload's"] = median(act["save_on_cpu_s"]) / median(act["offload_s"])
    for name, times in found.get("strided", {}).items():
        out[f"{name} over a contiguous copy followed by ours"] = median(times["ours_s"]) / median(times["contiguous_s"])
    if steps_s := found.get("saving_steps"):
        for stage in ("now", "lazy"):
            out[f"a step that saves, stage={stage}, over a step"] = median(steps_s[f"{stage}_s"]) / median(
                steps_s["plain_s"]
            )
    return out


def main() -> None:
    parser = harness.options(__doc__ or "", repeats=5)
    parser.add_argument(
        "--only", default="activations,saving_steps,state", help="with commas between; default: %(default)s"
    )
    parser.add_argument("--state", type=int, default=10 * harness.GIB, help="bytes of the state")
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--width", type=int, default=8192)
    parser.add_argument("--tokens", type=int, default=4096)
    given = parser.parse_args()
    shape = given.width, given.tokens
    parts: dict[str, Callable[[Path], dict[str, Any]]] = {
        "activations": lambda root: activations(given.layers, *shape, 3 * given.repeats),
        "saving_steps": lambda root: saving_steps(given.layers // 2, *shape, root, given.repeats),
        "state": lambda root: states(given.state, root, given.repeats),
        "strided": lambda root: strided(given.state // 40, given.repeats),
    }
    found: dict[str, Any] = {"machine": harness.machine(given.dir) | {"gpu": torch.cuda.get_device_name()}}
    found["machine"]["torch"] = torch.__version__
    for name in given.only.split(","):
        with tempfile.TemporaryDirectory(prefix="torch-gpu-", dir=given.dir) as directory:
            found[name] = parts[name](Path(directory))
        torch.cuda.empty_cache()
        found["ratios"] = ratios(found)
        harness.leave(found, given.json)


if __name__ == "__main__":
    main()
