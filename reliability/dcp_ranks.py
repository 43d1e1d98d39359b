"""A DCP Writer of many ranks, each a process of its own over gloo: two steps are saved and the newest is read back.

dcp_ranks.py [RANKS], 64 if not given: some minutes on two cores, mostly for importing torch. Exit code 1: a rank failed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import ebbtide.torch

SMALL: dict[str, Any] = {"device_cache": "1MiB", "host_cache": "1MiB", "disk": "16MiB"}


def work(rank: int, ranks: int, directory: str) -> None:
    """What one rank does."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/meet", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    whole = torch.arange(ranks * 100.0).reshape(ranks, 100)

    def rows(value: torch.Tensor) -> dict[str, Any]:
        return {"rows": distribute_tensor(value.clone(), mesh, [Shard(0)])}

    with ebbtide.torch.Writer(f"{directory}/run", **SMALL) as writer:
        for step in (1, 2):
            dcp.save(rows(whole + step), checkpoint_id=str(step), storage_writer=writer)
    dist.barrier()
    with ebbtide.torch.Reader(f"{directory}/run") as reader:
        state = rows(torch.zeros_like(whole))
        dcp.load(state, storage_reader=reader)
        assert reader.step == 2 and torch.equal(state["rows"].full_tensor(), whole + 2)
    dist.barrier()
    dist.destroy_process_group()


def main() -> int:
    """Starts the ranks, and counts those that failed."""
    if len(sys.argv) == 4:
        work(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
        return 0
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    with tempfile.TemporaryDirectory(prefix="ebbtide-", dir="/var/tmp") as directory:
        me = [sys.executable, "-W", "ignore", __file__]
        running = [subprocess.Popen([*me, str(rank), str(ranks), directory]) for rank in range(ranks)]
        failed = sum(process.wait() != 0 for process in running)
    print(f"{ranks - failed} of {ranks} ranks saved and read back what they should")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
