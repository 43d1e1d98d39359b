"""Five gigabytes in one piece, and a hundred thousand versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_support import HERE, Torch, needs_gpu, open_gpu

pytestmark = needs_gpu


def test_five_gigabytes_in_one_piece(disk: Path) -> None:
    if HERE[0]["total_bytes"] < 24 << 30:
        pytest.skip("the GPU holds less than 24 GiB")
    torch = Torch().torch
    size = 5_000_000_003  # beyond 32 bits, and odd
    x = torch.arange(size // 4 + 1, dtype=torch.int32, device="cuda").view(torch.uint8)[:size]
    with open_gpu(disk, device_cache="6GiB", host_cache="6GiB", disk=0) as store:
        store.checkpoint(0, x)
        out = torch.zeros_like(x)
        store.restore(0, out=out, keep=True)
        assert torch.equal(out, x)
        store.wait("host", timeout=60)
        out.zero_()
        with store.reserve(1, size, "uint8", timeout=60) as lent:  # the first has to leave the device
            torch.from_dlpack(lent).fill_(7)
        store.drop(1)
        store.restore(0, out=out)
        assert torch.equal(out, x)


def test_a_hundred_thousand_versions(disk: Path) -> None:
    torch = Torch().torch
    count = 100_000
    x = torch.zeros(1024, dtype=torch.int32, device="cuda")
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    with open_gpu(disk, device_cache="128MiB", host_cache="512MiB", disk=0) as store:
        history = store.history("many", order="reverse")
        for version in range(count):
            x.fill_(version)
            history.checkpoint(version, x, timeout=30)
        for version in reversed(range(count)):
            history.restore(version, out=x)
            wrong += (x != version).sum()
        assert int(wrong) == 0 and history.versions() == []
