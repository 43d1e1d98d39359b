"""A store without a GPU: the `device` option, named errors for streams, and PyTorch's tensors in host memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ebbtide
from ebbtide import _core


@pytest.fixture
def on_cpu(disk: Path) -> Any:
    with ebbtide.open(disk, device="cpu", device_cache="1MiB", host_cache="1MiB", disk=0) as store:
        yield store


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:-1", "cuda:x", "", 0, True, 1.5])
def test_a_wrong_device_is_refused_by_name(disk: Path, device: Any) -> None:
    with pytest.raises(ebbtide.InvalidArgument, match='device.*"auto", "cpu", "cuda", "cuda:N"'):
        ebbtide.open(disk, device=device)


def test_without_a_gpu_it_is_said_why(disk: Path) -> None:
    if _core.cuda_devices():
        pytest.skip("there is a GPU")
    for device in ("cuda", "cuda:0"):
        with pytest.raises(ebbtide.Unsupported, match=_core.cuda_absent_reason()):
            ebbtide.open(disk, device=device)
    with ebbtide.open(disk, device="auto", device_cache="1MiB", host_cache=0, disk=0) as store:
        store.checkpoint(0, np.zeros(3))


OLD_DRIVER = """
int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int* version) { *version = 11040; return 0; }
int cuGetProcAddress(const char* name, void** found, int version, unsigned long flags) { *found = 0; return 500; }
int cuGetExportTable(const void** table, const void* id) { *table = 0; return 500; }
"""
ON_OLD_DRIVER = """
import sys
import ebbtide, numpy as np
try:
    ebbtide.open(sys.argv[1], device="cuda")
except ebbtide.Unsupported as error:
    print(error)
with ebbtide.open(sys.argv[1], device_cache="1MiB", host_cache=0, disk=0) as store:
    store.checkpoint(0, np.ones(3))
    print(store.restore(0).sum())
"""


def test_a_driver_that_is_too_old_is_named_and_the_cpu_works(disk: Path) -> None:
    if _core.build_info()["cuda"] is None:
        pytest.skip("built without CUDA")
    (disk / "driver.c").write_text(OLD_DRIVER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", disk / "libcuda.so.1", disk / "driver.c"], check=True)
    environment = os.environ | {"LD_LIBRARY_PATH": str(disk)}
    environment.pop("EBBTIDE_DEVICE", None)
    command = [sys.executable, "-c", ON_OLD_DRIVER, str(disk)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^device=\"cuda\".* driver is for CUDA 11\.4, too old for .*update the driver", done.stdout)
    assert done.stdout.endswith("\n3.0\n")


class Stream:
    def __init__(self, **members: Any) -> None:
        vars(self).update(members)


class Protocol:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 0x40


@pytest.mark.parametrize(
    "stream", [1, 0x40, Stream(cuda_stream=0x40), Stream(ptr=0x40), Protocol(), Stream(__cuda_stream__=(0, 7))]
)
def test_streams_are_refused_by_name(on_cpu: ebbtide.Store, stream: Any) -> None:
    x = np.zeros(4)
    on_cpu.checkpoint(0, x)
    reservation, loan = on_cpu.reserve(1, 4), on_cpu.borrow(0, keep=True)
    for call in (
        lambda: on_cpu.checkpoint(2, x, stream=stream),
        lambda: on_cpu.restore(0, out=x, stream=stream),
        lambda: on_cpu.reserve(2, 4, stream=stream),
        lambda: on_cpu.borrow(0, stream=stream),
        lambda: reservation.commit(stream=stream),
        lambda: loan.release(stream=stream),
    ):
        with pytest.raises(ebbtide.Unsupported, match="stream= needs a store on a GPU"):
            call()
    assert on_cpu.versions() == [0], "nothing was consumed"
    loan.release()
    reservation.commit()
    assert on_cpu.versions() == [0, 1]


@pytest.mark.parametrize("stream", [-1, 1 << 64, True, "1", 1.0, Stream(ptr="x"), Stream(__cuda_stream__=3), object()])
def test_what_is_no_stream_is_refused_by_name(on_cpu: ebbtide.Store, stream: Any) -> None:
    with pytest.raises(ebbtide.InvalidArgument, match="stream=.* is not valid: .*__cuda_stream__"):
        on_cpu.checkpoint(0, np.zeros(4), stream=stream)


def test_a_library_for_what_is_reserved(on_cpu: ebbtide.Store) -> None:
    with pytest.raises(ebbtide.InvalidArgument, match='like=.jax. is not valid.*"torch"'):
        on_cpu.reserve(0, 4, like="jax")  # type: ignore[arg-type]
    torch = pytest.importorskip("torch")
    with on_cpu.reserve(0, 4, "float32", like="torch") as x:
        assert isinstance(x, torch.Tensor)
        x.fill_(3)
    assert (on_cpu.restore(0) == 3).all()


class TestTorch:
    @pytest.fixture(autouse=True)
    def torch(self) -> Any:
        return pytest.importorskip("torch")

    @pytest.mark.parametrize(
        "name", "float64 float16 bfloat16 uint8 int16 uint32 int64 bool complex64 complex128".split()
    )
    def test_types(self, torch: Any, on_cpu: ebbtide.Store, name: str) -> None:
        given = torch.ones(3, 4).to(getattr(torch, name))
        on_cpu.checkpoint(0, given)
        out = torch.zeros_like(given)
        assert on_cpu.restore(0, out=out, keep=True) is out and torch.equal(out, given)
        back = on_cpu.restore(0)
        assert back.dtype == given.dtype and torch.equal(back, given)

    def test_it_is_numpys_bytes(self, torch: Any, on_cpu: ebbtide.Store) -> None:
        for version, name in enumerate(("float32", "int8", "bool", "complex128")):
            on_cpu.checkpoint(version, torch.ones(5).to(getattr(torch, name)))
            out = np.zeros(5, name)
            on_cpu.restore(version, out=out)
            assert (out == 1).all()

    def test_a_tensor_and_a_target_may_be_in_any_order(self, torch: Any, on_cpu: ebbtide.Store) -> None:
        given, out = torch.arange(12.0).reshape(3, 4).T, torch.zeros(8, 6)[::2, ::2]
        on_cpu.checkpoint(0, given)
        assert on_cpu.restore(0, out=out, keep=True) is out and torch.equal(out, given)
        assert torch.equal(on_cpu.restore(0), given)

    def test_parameters_are_read_and_filled(self, torch: Any, on_cpu: ebbtide.Store) -> None:
        weight = torch.nn.Parameter(torch.ones(8))
        on_cpu.checkpoint(0, weight)
        with torch.no_grad():
            weight.zero_()
        on_cpu.restore(0, out=weight)
        assert bool((weight == 1).all()) and weight.requires_grad

    def test_what_has_no_plain_memory_is_refused_by_name(self, torch: Any, on_cpu: ebbtide.Store) -> None:
        for given, word in (
            (torch.eye(3).to_sparse(), "dense"),
            (torch.ones(3, device="meta"), "device 'meta'"),
        ):
            with pytest.raises(ebbtide.Unsupported, match=rf"arrays\['x'\].*{word}"):
                on_cpu.checkpoint(0, {"x": given})
        assert on_cpu.versions() == []

    def test_shapes(self, torch: Any, on_cpu: ebbtide.Store) -> None:
        for version, shape in enumerate(((), (0,), (4, 0, 2), (1,))):
            on_cpu.checkpoint(version, torch.full(shape, 2.0))
            back = on_cpu.restore(version)
            assert tuple(back.shape) == shape and bool((back == 2).all())
