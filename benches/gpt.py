#!/usr/bin/env python3
"""A training step of a GPT whose activations stay in memory, or are kept by `offload` in stores of several sizes, by
torch's `save_on_cpu(pin_memory=True)`, and by TRL's `OffloadActivations` where it can be imported.

24 blocks, AdamW (fused), autocast to bfloat16; the batch is 8 x 1024 tokens, then 2 x 1024. Each step ends with a wait for
the GPU; `host` is when the program would have gone on without that wait. Of a budget of GPU memory, a part is the store's
device cache; the rest is PyTorch's memory (`offload(memory=)`): three quarters if all that is saved fits there, otherwise
an eighth. The ways "..._stored" have the whole budget as device cache. The bound of a step whose budget has room for a part of what is saved:
max(forward, out) + max(rest of the step, in), where out and in are the other bytes over the rates of pinned copies,
measured here. A host's speed changes by half within seconds, so the ways are measured by turns, a few steps each, and a
row is the median of all turns. The peak is of PyTorch's allocator; the store's device cache comes on top.
"Hooks that do nothing" is what PyTorch itself takes for calling Python; the cost of a tensor is beyond that.

With --ranks, as many processes, each with a GPU, shard the model (FSDP2's `fully_shard`, each block and the whole). Each
has a batch, a store and a budget of its own. The bound is that of each rank, from its own rates while all of them copy.

  benches/gpt.py --json benches/results/gpt.json     # on a GPU
  benches/gpt.py --ranks 2 --only memory,large,middle,small --json sharded.json
  benches/gpt.py --small                             # the same number of small tensors, on processors
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
import ebbtide
import ebbtide.torch
import harness
import torch
import torch.distributed as dist
from torch.nn import functional

VOCABULARY = 8192
BLOCKS = 24
# By way: twelfths of the largest budget, and whether a part of it is PyTorch's memory.
BUDGETS = {
    "large": (12, True),
    "middle": (4, True),
    "small": (1, True),
    "large_stored": (12, False),
    "middle_stored": (4, False),
    "small_stored": (1, False),
}
WAYS = ",".join(["memory", "nothing", *BUDGETS, "save_on_cpu", "trl"])


class Shape(NamedTuple):
    width: int
    heads: int
    batch: int
    tokens: int
    least: int  # bytes of a tensor that is stored
    budget: int  # bytes, the largest
    device: str


GPU = Shape(1024, 16, 8, 1024, 1 << 20, 12 << 30, "cuda")
SMALL = Shape(64, 2, 8, 64, 8 << 10, 96 << 20, "cpu")


class Block(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*parts.unbind(), is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Gpt(torch.nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(VOCABULARY, shape.width)
        self.places = torch.nn.Parameter(torch.zeros(shape.tokens, shape.width))
        self.blocks = torch.nn.Sequential(*(Block(shape.width, shape.heads) for _ in range(BLOCKS)))
        self.norm, self.head = torch.nn.LayerNorm(shape.width), torch.nn.Linear(shape.width, VOCABULARY, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.words(words) + self.places)))


class Training:
    """The model, its optimizer and its data; :meth:`step` is one step."""

    def __init__(self, shape: Shape) -> None:
        torch.manual_seed(1)
        self.shape = shape
        self.model = Gpt(shape).to(shape.device)
        if dist.is_initialized():
            from torch.distributed.fsdp import fully_shard

            for module in [*self.model.blocks, self.model]:
                fully_shard(module)
            torch.manual_seed(2 + dist.get_rank())
        self.opt = torch.optim.AdamW(self.model.parameters(), 1e-5, fused=True)
        self.words = torch.randint(VOCABULARY, (shape.batch, shape.tokens + 1), device=shape.device)

    def step(self, keep: Callable[[], contextlib.AbstractContextManager[Any]]) -> dict[str, float]:
        """Seconds: of the step, of its forward pass on the device, and until the host has called everything."""
        marks = [self._mark()]
        self._wait()
        start = time.perf_counter()
        marks[0] = self._mark()
        with keep(), torch.autocast(self.shape.device, torch.bfloat16):
            out = self.model(self.words[:, :-1])
            loss = functional.cross_entropy(out.view(-1, VOCABULARY), self.words[:, 1:].reshape(-1))
        del out
        marks.append(self._mark())
        loss.backward()
        del loss
        self.opt.step()
        self.opt.zero_grad()
        marks.append(self._mark())
        host = time.perf_counter() - start
        self._wait()
        forward = marks[0].elapsed_time(marks[1]) / 1e3 if self.shape.device == "cuda" else marks[1] - marks[0]
        return {"s": time.perf_counter() - start, "forward_s": forward, "host_s": host}

    def _mark(self) -> Any:
        if self.shape.device != "cuda":
            return time.perf_counter()
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        return mark

    def _wait(self) -> None:
        if self.shape.device == "cuda":
            torch.cuda.synchronize()


def saved(training: Training) -> dict[str, int]:
    """What autograd saves in a step: tensors, those that are large enough, and the bytes of their memory."""
    found = {"tensors": 0, "stored": 0, "bytes": 0}
    there: dict[tuple[int, int], torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        found["tensors"] += 1
        memory = tensor.untyped_storage()
        key = memory.data_ptr(), tensor._version
        is_owned = isinstance(tensor, torch.nn.Parameter) or isinstance(tensor._base, torch.nn.Parameter)
        if min(tensor.nbytes, memory.nbytes()) >= training.shape.least and not is_owned:
            if key not in there:
                found["stored"] += 1
                found["bytes"] += memory.nbytes()
            there[key] = tensor.detach()  # so that no other gets this address
        return tensor

    training.step(lambda: torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor))
    return found


def nothing() -> contextlib.AbstractContextManager[Any]:
    return torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)


def trl(training: Training) -> Callable[[], Any]:
    from trl.models.activation_offloading import OffloadActivations

    keep = OffloadActivations(min_offload_size=training.shape.least)
    if hasattr(keep, "update_model_params"):
        keep.update_model_params(training.model)
    return lambda: keep


def ways(
    training: Training, names: list[str], size: int, logs: str
) -> Iterator[tuple[str, Callable[[], Any], int, int]]:
    """A name, a context for each step, its budget, and how much of that stays. What cannot be imported is left out by name."""
    shape = training.shape
    for name in names:
        if name in BUDGETS:
            twelfths, parted = BUDGETS[name]
            budget = shape.budget * twelfths // 12
            stays = (budget * 3 // 4 if size <= budget * 3 // 4 else budget // 8) if parted else 0
            options: dict[str, Any] = {"device": shape.device, "device_cache": budget - stays, "host_cache": size * 5 // 4 + (64 << 20), "disk": 0}  # fmt: skip
            if logs:
                options["event_log"] = f"{logs}/{name}-{shape.batch}.log"
            with ebbtide.open(warm=True, **options) as store:
                keep = ebbtide.torch.offload(store, memory=stays, min_bytes=shape.least)
                yield name, lambda keep=keep: keep, budget, stays
                del keep
        elif name == "trl":
            try:
                yield name, trl(training), 0, 0
            except Exception as error:  # TRL's own, or of what it needs
                print(f"trl: not there: {type(error).__name__}: {error}", file=sys.stderr)
        elif name == "save_on_cpu":
            pinned = shape.device == "cuda"
            yield name, lambda pinned=pinned: torch.autograd.graph.save_on_cpu(pin_memory=pinned), 0, 0
        else:
            yield name, nothing if name == "nothing" else contextlib.nullcontext, 0, 0


def together() -> None:
    """Waits for the other ranks."""
    if dist.is_initialized():
        dist.barrier()


def link_rates() -> tuple[float, float]:
    """Bytes a second of one pinned copy, to the host and back, while the other ranks copy too."""
    here, there = torch.empty(1 << 30, dtype=torch.uint8, device="cuda"), torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)  # fmt: skip
    rates = []
    for to, of in ((there, here), (here, there)):
        best = float("inf")
        for _ in range(4):
            torch.cuda.synchronize()
            together()
            start = time.perf_counter()
            to.copy_(of, non_blocking=True)
            torch.cuda.synchronize()
            best = min(best, time.perf_counter() - start)
        rates.append(here.nbytes / best)
    return rates[0], rates[1]


def measure(shape: Shape, names: list[str], repeats: int, turns: int, logs: str) -> dict[str, Any]:
    training = Training(shape)
    for _ in range(2):
        training.step(contextlib.nullcontext)
    found: dict[str, Any] = {"shape": shape._asdict(), "saved": saved(training), "ways": {}}
    if shape.device == "cuda":
        found["d2h_bytes_per_s"], found["h2d_bytes_per_s"] = link_rates()
    for turn in range(turns):
        for name, keep, budget, stays in ways(training, names, found["saved"]["bytes"], logs):
            for _ in range(3):  # new memory, and what is learned from a step
                training.step(keep)
            if shape.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            way = found["ways"].setdefault(name, {"s": [], "forward_s": [], "host_s": [], "peak_bytes": 0})
            for _ in range(repeats):
                together()
                for key, took in training.step(keep).items():
                    way[key].append(took)
            if shape.device == "cuda":
                way["peak_bytes"] = max(way["peak_bytes"], torch.cuda.max_memory_allocated())
                torch.cuda.empty_cache()
            way["budget_bytes"], way["memory_bytes"] = budget, stays
        print(f"turn {turn + 1} of {turns}", file=sys.stderr, flush=True)
    for name in found["ways"]:
        show(found, name)
    return found


def show(found: dict[str, Any], name: str) -> None:
    """The line of a way, with what follows from those before it."""
    way, memory = found["ways"][name], found["ways"].get("memory")
    middle = {key: statistics.median(way[key]) for key in ("s", "host_s", "forward_s")}
    line = f"batch {found['shape']['batch']} {name:12} {1e3 * middle['s']:8.1f} ms a step ({1e3 * min(way['s']):.1f} to {1e3 * max(way['s']):.1f}), host {1e3 * middle['host_s']:.1f}"  # fmt: skip
    if way["peak_bytes"]:
        line += f", peak {way['peak_bytes'] / harness.GIB:.2f} GiB + {(way['budget_bytes'] - way['memory_bytes']) / harness.GIB:.2f}"
    if memory and name in BUDGETS:
        forward, whole = statistics.median(memory["forward_s"]), statistics.median(memory["s"])
        leaving = max(0, found["saved"]["bytes"] - way["budget_bytes"]) if "d2h_bytes_per_s" in found else 0
        out, back = (leaving / found.get(f"{which}_bytes_per_s", 1) for which in ("d2h", "h2d"))
        way["bound_s"] = max(forward, out) + max(whole - forward, back)
        line += f", bound {1e3 * way['bound_s']:.1f} ms, over it {middle['s'] / way['bound_s']:.2f}"
    if (base := found["ways"].get("nothing")) and name in BUDGETS:
        beyond = middle["host_s"] - statistics.median(base["host_s"])
        way["us_a_tensor"] = 1e6 * beyond / found["saved"]["tensors"]
        line += f", host {way['us_a_tensor']:.1f} us a tensor"
    if dist.is_initialized():
        line = f"rank {dist.get_rank()} {line}"
    print(line, file=sys.stderr, flush=True)


def measure_all(given: argparse.Namespace) -> Iterator[dict[int, Any]]:
    """By batch, all that was measured until now."""
    shape = SMALL if given.small else GPU
    found: dict[int, Any] = {}
    for batch in map(int, given.batches.split(",")):
        found[batch] = measure(
            shape._replace(batch=batch), given.only.split(","), given.repeats, given.turns, given.logs
        )
        print(f"batch {batch}: {found[batch]['saved']}", file=sys.stderr, flush=True)
        yield found


def run_rank(rank: int, given: argparse.Namespace, described: dict[str, Any], port: int) -> None:
    address = {"init_method": f"tcp://127.0.0.1:{port}", "rank": rank, "world_size": given.ranks}
    if given.small:
        dist.init_process_group("gloo", **address)
    else:
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank), **address)
    try:
        for batches in measure_all(given):
            found = [None] * given.ranks
            dist.all_gather_object(found, batches)
            if rank == 0:
                harness.leave({"machine": described, "ranks": found}, given.json)
    finally:
        dist.destroy_process_group()


def main() -> None:
    parser = harness.options(__doc__ or "", repeats=5)
    parser.add_argument("--small", action="store_true", help="small tensors, on processors")
    parser.add_argument("--only", default=WAYS, help="with commas between; default: %(default)s")
    parser.add_argument(
        "--turns", type=int, default=5, help="of all the ways, each with a new store; default: %(default)s"
    )
    parser.add_argument("--batches", default="8,2", help="with commas between; default: %(default)s")
    parser.add_argument("--logs", default="", help="a folder for the stores' event logs")
    parser.add_argument("--ranks", type=int, default=1, help="processes that shard the model; default: %(default)s")
    given = parser.parse_args()
    described = harness.machine(given.dir) | {"torch": torch.__version__}
    if not given.small:
        described["gpu"] = torch.cuda.get_device_name()
    if given.ranks == 1:
        for found in measure_all(given):
            harness.leave({"machine": described, "batches": found}, given.json)
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(run_rank, (given, described, port), given.ranks)


if __name__ == "__main__":
    main()
