"""The papers' benchmark: shots over the store, compared with the least time that any schedule could reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .series import shots

__all__ = ["shots"]


def __getattr__(name: str) -> Any:
    if name != "shots":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .series import shots  # when it is asked for: the command line's help need not load NumPy for it

    return shots
