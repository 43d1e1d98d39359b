"""What benches/predicted measured: the simulator beside the real runtime, a row for each shot."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

WITHIN, SPREAD = 0.15, 0.15
SHORT_S, WITHIN_SHORT_S = 0.060, 0.010  # a shot that is blocked for less may differ by so much


def verdict(measured: list[float], predicted: list[float]) -> str:
    """Of one shot's repeats. A spread says how well a shot repeats: one run has none."""
    blocked, expected = statistics.median(measured), statistics.median(predicted)
    if len(measured) < 2:
        return "shown: one run"
    if max(measured) - min(measured) > SPREAD * blocked:
        return "shown: its spread"
    allowed = WITHIN_SHORT_S if blocked < SHORT_S else WITHIN * blocked
    return "holds" if abs(expected - blocked) <= allowed else "DOES NOT HOLD"


def summary(runs: Mapping[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    """A row for each shot."""
    rows = []
    for name, several in runs.items():
        measured, predicted = ([run[key] for run in several] for key in ("blocked_s", "predicted_s"))
        blocked = statistics.median(measured)
        rows.append(
            {
                "shot": name,
                "runs": len(several),
                "blocked_s": blocked,
                "spread": (max(measured) - min(measured)) / blocked,
                "predicted_s": statistics.median(predicted),
                "from_bare_rates_s": statistics.median(run["from_bare_rates_s"] for run in several),
                "verdict": verdict(measured, predicted),
            }
        )
    return rows


def table(rows: Iterable[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows, in milliseconds."""
    heads = ["shot", "runs", "blocked (ms)", "spread", "simulated (ms)", "simulated / blocked", "from bare rates", ""]
    return heads, [
        [
            row["shot"],
            str(row["runs"]),
            f"{1e3 * row['blocked_s']:.0f}",
            f"{row['spread']:.0%}",
            f"{1e3 * row['predicted_s']:.0f}",
            f"{row['predicted_s'] / row['blocked_s']:.2f}",
            f"{row['from_bare_rates_s'] / row['blocked_s']:.2f}",
            row["verdict"],
        ]
        for row in rows
    ]
