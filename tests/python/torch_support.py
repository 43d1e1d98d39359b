"""What the tests of ebbtide.torch share. They are skipped by name where torch is not installed."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
helpers = pytest.importorskip("ebbtide.torch")
