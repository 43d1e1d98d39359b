"""One rank of a job of two over gloo: WHAT RANK RENDEZVOUS DIRECTORY."""

from __future__ import annotations

import contextlib
import copy
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import ebbtide.torch

SMALL: dict[str, Any] = {"device_cache": "4MiB", "host_cache": "8MiB", "disk": "256MiB"}
WHOLE = torch.arange(24_000.0).reshape(120, 200)


def sharded(value: torch.Tensor, placement: Any) -> Any:
    return distribute_tensor(value.clone(), init_device_mesh("cpu", (2,)), [placement])


def save(rank: int, directory: str) -> None:
    with ebbtide.torch.Writer(directory, **SMALL) as writer:
        for step in (3, 4):
            state = {
                "rows": sharded(WHOLE + step, Shard(0)),
                "columns": sharded(WHOLE - step, Shard(1)),
                "same": sharded(WHOLE * step, Replicate()),
                "half": torch.full((7,), step, dtype=torch.bfloat16),
                "nothing": torch.empty(0),
                "count": {"step": step},
            }
            dcp.save(state, checkpoint_id=str(step), storage_writer=writer)
        future = dcp.async_save(state, checkpoint_id="5", storage_writer=writer)
        future.result()
        dcp.save(state, checkpoint_id="4", storage_writer=writer)  # anew


def save_rows(writer: ebbtide.torch.Writer, step: int, value: int, caching: bool = False) -> None:
    planner = dcp.DefaultSavePlanner(enable_plan_caching=caching)
    state = {"rows": sharded(WHOLE + value, Shard(0))}
    dcp.save(state, checkpoint_id=str(step), storage_writer=writer, planner=planner)


def shard_and_offload(rank: int, directory: str) -> None:
    """The gradients of a model that FSDP2 shards are the same bits with its activations in a store, from step to step."""
    torch.manual_seed(0)
    widths = [torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64), torch.nn.LayerNorm(64)]
    model = torch.nn.Sequential(*(torch.nn.Sequential(*copy.deepcopy(widths)) for _ in range(4)))
    for module in [*model, model]:
        torch.distributed.fsdp.fully_shard(module)
    torch.manual_seed(1 + rank)
    x = torch.randn(128, 64)

    def gradients(keep: Any) -> list[torch.Tensor]:
        model.zero_grad()
        with keep:
            loss = model(x).square().mean()
        loss.backward()
        return [parameter.grad.to_local().clone() for parameter in model.parameters()]  # type: ignore[union-attr]

    right = gradients(contextlib.nullcontext())
    for memory in ("0", "128KiB"):
        with ebbtide.open(device="cpu", device_cache="8MiB", host_cache="16MiB", disk=0) as store:
            keep = ebbtide.torch.offload(store, memory=memory, min_bytes="8KiB")
            for _ in range(4):
                assert all(map(torch.equal, right, gradients(keep)))
            step = keep._saved.step
            assert 1 <= step.versions < len(step.kinds)  # some were gathered


class Dies(ebbtide.torch.Writer):
    """Rank 1 is killed once its part is durable; rank 0 after that, before it begins with its own."""

    def write_data(self, *given: Any) -> Any:
        written = Path(self._where) / "written"
        if dist.get_rank() == 1:
            super().write_data(*given)
            written.touch()
        while not written.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)


def die_anew(rank: int, directory: str) -> None:
    with ebbtide.torch.Writer(directory, **SMALL) as writer:
        save_rows(writer, 3, 10)
    save_rows(Dies(directory, **SMALL), 3, 20)


def write_anew(rank: int, directory: str) -> None:
    with ebbtide.torch.Writer(directory, **SMALL) as writer:
        save_rows(writer, 3, 25, caching=True)
        save_rows(writer, 3, 30, caching=True)
        save_rows(writer, 9, 0, caching=True)
        if rank == 0:
            writer.drop(9)
        dist.barrier()
        writer.drop(9)


def look_apart(rank: int, directory: str) -> None:
    """The second rank looks before step 4 is there."""
    with ebbtide.torch.Writer(directory, **SMALL) as writer, ebbtide.torch.Reader(directory) as reader:
        save_rows(writer, 3, 3)
        if rank == 1:
            early = reader.read_metadata()
            reader.read_metadata = lambda **_: early
        save_rows(writer, 4, 4)
        state = {"rows": sharded(torch.zeros(120, 200), Shard(1))}
        dcp.load(state, storage_reader=reader)
        assert reader.step == 4 and torch.equal(state["rows"].full_tensor(), WHOLE + 4)


def load(rank: int, directory: str) -> None:
    with ebbtide.torch.Reader(directory, 3) as reader:
        state = {"rows": sharded(torch.zeros(120, 200), Shard(1)), "columns": sharded(torch.zeros(120, 200), Shard(0))}
        dcp.load(state, storage_reader=reader)
    assert torch.equal(state["rows"].full_tensor(), WHOLE + 3)
    assert torch.equal(state["columns"].full_tensor(), WHOLE - 3)


def manage(rank: int, directory: str) -> None:
    """The second rank's newest checkpoint is damaged: both go back."""
    value = torch.zeros(1000)
    with ebbtide.torch.Manager(directory, keep_last=2, best=("loss", 1), **SMALL) as manager:
        assert manager.resume(value=value) == 0
        for step in range(6):
            value.fill_(step + 10 * rank)
            manager.step(step, loss=float((step - 1) ** 2 + rank))
            manager.wait()
            dist.barrier()
        assert manager.history.versions() == [1, 4, 5], manager.history.versions()
    if rank == 1:
        name = os.path.join(directory, "rank-1-of-2", "segment-00000001.ebb")
        with open(name, "r+b") as file:
            at = file.read().rindex(bytes(memoryview(value.numpy())))
            file.seek(at)
            file.write(b"\xff")
    dist.barrier()
    with ebbtide.torch.Manager(directory, keep_last=2, **SMALL) as manager:
        assert manager.resume(value=value) == 5
        assert (value == 4 + 10 * rank).all()
        manager.step(5)
        manager.wait()
        assert manager.history.versions() == [4, 5], manager.history.versions()


def keep_common(rank: int, directory: str) -> None:
    """Saves that fail on one rank each: rank 1 lacks step 2, rank 0 lacks step 3."""
    with ebbtide.torch.Manager(directory, keep_last=1, **SMALL) as manager:
        manager.resume()
        manager.step(1)
        for step in (2, 3):
            if (rank, step) in ((0, 2), (1, 3)):
                manager.step(step)
            else:
                manager._tidy()  # which all ranks do together
            manager.history.wait("storage")
            dist.barrier()
        manager.wait()
        assert manager.history.versions() == [[1, 2], [1, 3]][rank], manager.history.versions()
        manager.step(4)
        manager.wait()
        assert manager.history.versions() == [4], manager.history.versions()


if __name__ == "__main__":
    what, rank, rendezvous, directory = sys.argv[1:]
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=int(rank), world_size=2)
    globals()[what](int(rank), directory)
    dist.destroy_process_group()
