"""Processes of a node's pool and their agent are killed at random moments; what is found is what a model allows."""

import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from reliability import node
from reliability.outcomes import Count

SECONDS = 600 if os.environ.get("EBB_LONG") else 15


def test_only_what_was_never_reported_is_missing_and_nothing_dropped_comes_back(tmp_path):
    count, seed, end = Count(), 1, time.monotonic() + SECONDS
    while seed == 1 or time.monotonic() < end:
        (tmp_path / str(seed)).mkdir()
        node.note(count, *node.play(seed, tmp_path / str(seed)))
        seed += 1
    assert count.violations == []
    assert set(count.outcomes) <= set(node.MUST)
