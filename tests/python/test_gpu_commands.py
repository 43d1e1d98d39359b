"""Commands on a GPU, from end to end (the demo's are the documentation's, which tests/docs runs)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from child import ended
from gpu_support import needs_gpu

pytestmark = needs_gpu
EBBTIDE = [sys.executable, "-c", "from ebbtide.cli import main; main()"]


def test_a_shot_of_two_ranks(disk: Path) -> None:
    """Which share a GPU where there is one: 33 MiB each, most of them past both caches."""
    out = disk / "shot.json"
    shot = [*EBBTIDE, "bench", "shot", "--device", "cuda", "--ranks", "2", "--checkpoints", "33", "--size", "1MiB"]
    shot += ["--interval", "1ms", "--device-cache", "4MiB", "--host-cache", "8MiB", "--verify"]
    done = ended(*shot, "--dir", disk, "--json", out, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(out.read_text())
    assert document["verified"] == {"restores": 66, "wrong": 0, "wrong_bytes": 0}
    assert all(stats["settings"].startswith("cuda:") for stats in document["stats"])
