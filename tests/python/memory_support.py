"""What the tests of memory share."""

from __future__ import annotations

from pathlib import Path


def resident() -> int:
    """Bytes of this process, every mapping summed by the kernel."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) << 10
    raise OSError("/proc/self/smaps_rollup has no Rss line")
