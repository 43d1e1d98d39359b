"""A process of its own for what a test does to its process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any


def ended(*command: object, timeout: float = 120, **more: Any) -> subprocess.CompletedProcess[str]:
    """Runs it to its end, whatever that is."""
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=timeout, **more)


def run_python(code: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return ended(sys.executable, "-c", code, **more)
