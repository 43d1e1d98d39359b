"""The folder where a worker's stores keep their files: on a disk, and no other worker's."""

import os
import pathlib

SCRATCH = (
    pathlib.Path(__file__).resolve().parents[2] / "build" / "scratch" / os.environ.get("PYTEST_XDIST_WORKER", "main")
)
SCRATCH.mkdir(parents=True, exist_ok=True)
