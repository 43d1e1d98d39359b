from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ebbtide

os.environ.setdefault("EBBTIDE_DEVICE", "cpu")  # a test that is about a GPU names it


@pytest.fixture
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory on a real file system: pytest's own may be a tmpfs, which a store refuses."""
    checkout = Path(__file__).resolve().parents[2]
    base = os.environ.get("EBBTIDE_DIR") or checkout
    with tempfile.TemporaryDirectory(prefix=".test-", dir=base) as directory:
        yield Path(directory)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The machine's bare rates cost nothing; for which configurations they were asked."""
    from bench_stand_in import some_rates
    from ebbtide.bench import rates

    asked = []
    monkeypatch.setattr(rates, "measure", lambda config: asked.append(config) or some_rates(config))
    return asked


@pytest.fixture
def store(disk: Path) -> Iterator[ebbtide.Store]:
    """Caches of a few megabytes, so that a test fills them."""
    with ebbtide.open(disk, device_cache="1MiB", host_cache="2MiB", disk="32MiB") as store:
        yield store
