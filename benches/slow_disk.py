"""A slow disk, for benchmarks that run as root. Needs Debian's libfuse3-dev."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
import time
from collections.abc import Iterator

HERE = pathlib.Path(__file__).resolve().parent
SLOW_RATE = 60e6  # bytes a second


@contextlib.contextmanager
def slow_disk(directory: pathlib.Path, rate: float = SLOW_RATE) -> Iterator[pathlib.Path]:
    """ext4 on a loop device over a FUSE file that is written at `rate`, bytes a second."""
    program, below, mounted = directory / "slow_disk", directory / "fuse", directory / "slow"
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=True)
    source = HERE / "slow_disk.cpp"
    subprocess.run(["g++", "-std=c++20", "-O2", source, "-o", program, *flags.stdout.split()], check=True)
    below.mkdir(), mounted.mkdir()
    backing = directory / "backing"
    with backing.open("wb") as file:
        file.truncate(4 << 30)
    server = subprocess.Popen([program, backing, str(int(rate)), "-f", below])
    with contextlib.ExitStack() as stack:
        stack.callback(server.wait, timeout=60)
        stack.callback(subprocess.run, ["umount", below])
        while not (below / "disk").exists():
            time.sleep(0.05)
            if server.poll() is not None:
                raise RuntimeError("the FUSE program has ended")
        subprocess.run(["mkfs.ext4", "-qF", "-E", "lazy_itable_init=0", backing], check=True)
        loop = subprocess.run(["losetup", "-f", "--show", below / "disk"], capture_output=True, text=True, check=True)
        device = loop.stdout.strip()
        stack.callback(subprocess.run, ["losetup", "-d", device])
        subprocess.run(["mount", device, mounted], check=True)
        stack.callback(subprocess.run, ["umount", mounted])
        yield mounted
