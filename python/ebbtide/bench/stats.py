"""A store's statistics between two moments, for several shots over one store."""

from __future__ import annotations

from typing import Any

#: Fields that describe a moment, not counts.
_STANDING = {"capacity", "used", "largest_gap", "replicas", "estimate_bytes_per_s", "leases"}


def since(before: Any, after: Any) -> Any:
    """The counts of `store.stats()` between `before` and `after`; lists of calls without those of before.

    >>> since({"restores": 3, "found_on": [0, 0, 1]}, {"restores": 5, "found_on": [0, 0, 1, 2, 0]})
    {'restores': 2, 'found_on': [2, 0]}
    """
    if isinstance(after, dict):
        calls = after.get("restores", 0) - before.get("restores", 0)
        return {
            key: value if key in _STANDING or key not in before
            else list(value)[max(0, len(value) - calls) :] if _is_of_calls(value)  # the newest are last
            else since(before[key], value)
            for key, value in after.items()
        }  # fmt: skip
    if isinstance(after, (list, tuple)):
        return [since(*pair) for pair in zip(before, after, strict=True)]
    if isinstance(after, (int, float)) and not isinstance(after, bool):
        return after - before
    return after


def _is_of_calls(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and not (value and isinstance(value[0], dict))
