"""docs/reliability.md, from what the trials counted and nothing else."""

from __future__ import annotations

from typing import Any

from reliability.outcomes import LISTED, MEANING, OUTCOMES, holds


def row(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def rule(columns: int) -> str:
    return "|" + "---|" * columns


def number(value: int) -> str:
    return f"{value:,}" if value else "0"


def summary_cell(found: dict[str, Any] | None, must: list[str], ours: bool) -> str:
    if found is None:
        return "–"
    if "skipped" in found:
        return "not tried"
    text = ", ".join(f"{number(n)} {name}" for name, n in found["outcomes"].items() if n)
    if ours and not holds(found, must):
        text = f"**{text or 'nothing counted'} (must not be)**"
    return text


def trial_section(trial: dict[str, Any], subjects: dict[str, dict]) -> list[str]:
    lines = [f"## {trial['title']}", "", trial["what"], ""]
    lines += ["Must be: " + " or ".join(trial["must"]) + ".", ""]
    found = trial["found"]
    tried = {key: one for key, one in found.items() if "skipped" not in one}
    if tried:
        lines += [row("", *(subjects[key]["title"] for key in tried)), rule(1 + len(tried))]
        lines += [row(name, *(number(one["outcomes"][name]) for one in tried.values())) for name in OUTCOMES]
        lines += [row("count", *(number(one["count"]) for one in tried.values()))]
        lines += [row("seed", *(one["seed"] for one in tried.values()))]
        lines += [row("commit", *(one["commit"] for one in tried.values()))]
        lines += [row("taken", *(one["taken"] for one in tried.values()))]
        lines += [row("seconds", *(number(one["seconds"]) for one in tried.values())), ""]
    for key, one in found.items():
        if "skipped" in one:
            lines += [f"Not tried on {subjects[key]['title']}: {one['skipped']}.", ""]
    lines += parts(tried, subjects)
    for key, one in tried.items():
        if key == "ebbtide" and not holds(one, trial["must"]):
            lines += ["**Must not be:**", "", *(f"- {line}" for line in one["violations"]), ""]
    return lines


def parts(tried: dict[str, dict], subjects: dict[str, dict]) -> list[str]:
    """The same counts apart, where they were taken apart."""
    rows = []
    for key, one in tried.items():
        for kind, counts in one["by"].items():
            text = (
                ", ".join(f"{number(n)} {name}" for name, n in counts.items() if n)
                if isinstance(counts, dict)
                else counts
            )
            cells = [kind, text] if len(tried) == 1 else [subjects[key]["title"], kind, text]
            rows.append(row(*cells))
    if not rows:
        return []
    plain = all(not isinstance(counts, dict) for one in tried.values() for counts in one["by"].values())
    head = [*[""] * (1 if len(tried) == 1 else 2), "count" if plain else "outcomes"]
    return [row(*head), rule(len(head)), *rows, ""]


def made_of(trials: list[dict[str, Any]]) -> str:
    """Where and when: each part may have been made by itself."""
    parts = [part for trial in trials for part in trial["found"].values() if "skipped" not in part]

    def each(what: str) -> list[str]:
        return sorted({one for part in parts for one in part[what].split(LISTED)})

    def all_of(what: str) -> str:
        return LISTED.join(each(what)) or "nowhere"

    days = each("taken") or ["never"]
    short = ", some in the short form" if any(part["short"] for part in parts) else ""
    seconds = sum(part["seconds"] for part in parts)
    return (
        f"Taken {days[0]}{' to ' + days[-1] if len(days) > 1 else ''} on {all_of('machine')}{short}, in"
        f" {number(round(seconds / 60))} minutes; commit {all_of('commit')}. Each trial has its seed below."
    )


def page(document: dict[str, Any]) -> str:
    subjects, trials = document["subjects"], document["trials"]
    lines = [
        "# Reliability: what was tried, and what came of it",
        "",
        "Made by `reliability/run`, which runs all of it and writes this page from what it counted"
        " (`benches/results/reliability.json`); change nothing here by hand.",
        "",
        row("outcome", "what it means"),
        rule(2),
        *(row(name, MEANING[name]) for name in OUTCOMES),
        "",
        made_of(trials),
        "",
        "## All trials",
        "",
    ]
    lines += [row("trial", *(one["title"] for one in subjects.values())), rule(1 + len(subjects))]
    for trial in trials:
        cells = [summary_cell(trial["found"].get(key), trial["must"], key == "ebbtide") for key in subjects]
        lines.append(row(trial["title"], *cells))
    lines += ["", "–: the trial is of Ebbtide's own files or calls, or was not made on others.", ""]
    for trial in trials:
        lines += trial_section(trial, subjects)
    lines += ["## How each was used", "", row("", "versions", "how"), rule(3)]
    lines += [
        row(one["title"], one.get("versions", one.get("missing", "")), one.get("how", "")) for one in subjects.values()
    ]
    lines += [
        "",
        "A program that restarts takes the newest checkpoint that can be had: where a library raises, the one before it"
        " is tried, by the library itself or, where it leaves that to the program, by the trial."
        " A library is never blamed for a sync or a rename that its documentation leaves to the program:"
        " the trial does them.",
        "",
        "```sh",
        "make reliability                         # builds, installs into build/, runs all of it: four hours",
        "reliability/run                          # the same with what is built and installed for this Python",
        "reliability/run --only kills --seed 7    # a part again: its counts here are replaced",
        "reliability/run --only kills --add       # or added to",
        "reliability/run --short                  # a minute or two; writes nothing here",
        "```",
        "",
        "As root, or the trials that need it are left out by name.",
    ]
    return "\n".join(lines) + "\n"
