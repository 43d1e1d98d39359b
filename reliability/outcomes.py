"""What a trial can end with, how it is counted, and what is kept of it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

# In the order of the tables.
EXACT, OLDER_EXACT, CLEAR_ERROR = "EXACT", "OLDER_EXACT", "CLEAR_ERROR"
SILENT_WRONG, CRASH, HANG = "SILENT_WRONG", "CRASH", "HANG"
OUTCOMES = (EXACT, OLDER_EXACT, CLEAR_ERROR, SILENT_WRONG, CRASH, HANG)
MEANING = {
    EXACT: "all that there should be, bit for bit",
    OLDER_EXACT: "something newer is missing, damaged or never reported durable; all else is there, bit for bit",
    CLEAR_ERROR: "an error that says what is wrong, and no bytes",
    SILENT_WRONG: "a wrong byte, or something missing that was reported durable, as if all were well; or a breach",
    CRASH: "the process died of a signal that nobody sent",
    HANG: "no answer within the time limit",
}
SHOWN = 20  # violations that are kept of one trial
LISTED = "; "  # between what several runs have each


_PLACES = re.compile(r"(/[^/\s:'\"]+)+/(?=[^/\s:'\"]+)")


def _plain(text: str) -> str:
    """Without the folders of the machine that it was said on."""
    return _PLACES.sub("", text)


@dataclass
class Count:
    """One subject's outcomes in one trial."""

    seed: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    by: dict[str, Counter[str]] = field(default_factory=dict)  # the same, apart
    violations: list[str] = field(default_factory=list)
    told: Counter[str] = field(default_factory=Counter)  # what the errors were, shortened

    def add(self, outcome: str, kind: str = "", told: str = "") -> None:
        self.outcomes[outcome] += 1
        if kind:
            self.by.setdefault(kind, Counter())[outcome] += 1
        if told:
            self.told[_plain(told)[:160]] += 1

    def hold(self, must: tuple[str, ...], outcome: str, what: str) -> None:
        """Notes it when the outcome is none of those that must be."""
        if outcome not in must:
            self.violate(f"{outcome}: {_plain(what)[:300]}")

    def violate(self, what: str) -> None:
        if len(self.violations) < SHOWN:
            self.violations.append(what)

    def as_json(self) -> dict[str, Any]:
        return {
            "count": sum(self.outcomes.values()),
            "seed": self.seed,
            "outcomes": {name: self.outcomes.get(name, 0) for name in OUTCOMES},
            "by": {kind: dict(sorted(counts.items())) for kind, counts in sorted(self.by.items())},
            "told": dict(self.told.most_common(6)),
            "violations": self.violations,
        }


def added(found: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """One subject's JSON of two runs of a trial, as one; what has no sum is listed."""

    def sums(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        return one | {
            key: n if key not in one else sums(one[key], n) if isinstance(n, dict) else one[key] + n
            for key, n in other.items()
        }

    both = {key: sums(found[key], more[key]) for key in ("outcomes", "by", "told")}
    both |= {key: found[key] + more[key] for key in ("count", "seconds")}
    both |= {key: LISTED.join(dict.fromkeys(f"{found[key]}{LISTED}{more[key]}".split(LISTED)))
             for key in ("seed", "commit", "machine", "taken")}  # fmt: skip
    both["violations"] = (found["violations"] + more["violations"])[:SHOWN]
    return both | {"short": found["short"] or more["short"]}


def lacking(found: dict[str, Any], least: dict[str, int]) -> list[str]:
    """Of a subject's JSON: what was counted less often than it must be, by name."""
    many = {"": found["count"]} | {
        kind: sum(counts.values()) if isinstance(counts, dict) else counts for kind, counts in found["by"].items()
    }
    return [f"{kind or 'cases'}: {many.get(kind, 0)} of {n}" for kind, n in least.items() if many.get(kind, 0) < n]


def holds(found: dict[str, Any], must: list[str]) -> bool:
    """Of a subject's JSON: nothing but what must be, and something."""
    return (
        not found["violations"]
        and found["count"] > 0
        and all(n == 0 for name, n in found["outcomes"].items() if name not in must)
    )
