"""The store itself."""

from __future__ import annotations

from typing import Any

import ebbtide

from . import Given


def open(given: Given, **options: Any) -> Any:
    return ebbtide.open(**(given.store | options | {"directory": str(given.directory), "device": given.device.name}))
