"""A store's statistics between two moments, for several shots over one store."""

from __future__ import annotations

from typing import Any

#: What tells of a moment, not of what was counted until then.
_STANDING = {"capacity", "used", "largest_gap", "replicas", "estimate_bytes_per_s"}


def since(before: Any, after: Any) -> Any:
    """What `store.stats()` counted between `before` and `after`; lists of calls without those of before.

    >>> since({"restores": 3, "found_on": [0, 0, 1]}, {"restores": 5, "found_on": [0, 0, 1, 2, 0]})
    {'restores': 2, 'found_on': [2, 0]}
    """
    if isinstance(after, dict):
        return {
            key: value if key in _STANDING or key not in before else since(before[key], value)
            for key, value in after.items()
        }
    if isinstance(after, (list, tuple)):
        if after and isinstance(after[0], dict):
            return [since(*pair) for pair in zip(before, after, strict=True)]
        return list(after[len(before) :])
    if isinstance(after, (int, float)) and not isinstance(after, bool):
        return after - before
    return after
