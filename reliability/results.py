"""What was counted, kept by part: one trial on one subject. A part can be made again by itself, and says what it was
made of: the commit, the seed, the machine, when."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import platform
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from reliability import page
from reliability.outcomes import added
from reliability.session import ROOT

PAGE, DATA = pathlib.Path("docs/reliability.md"), pathlib.Path("benches/results/reliability.json")
SUBJECTS = ("ebbtide", "torch_save", "dcp", "orbax", "safetensors")  # in the order of the columns


def machine(directory: pathlib.Path) -> str:
    """What bears on the trials, and no names."""
    sys.path.insert(0, str(ROOT / "benches"))
    import harness

    found = harness.machine(str(directory))
    kernel = platform.release().partition("-")[0]
    return f"{found['cpus']} cores ({found['cpu']}), Linux {kernel}, {found['file_system']}"


def commit() -> str:
    """Of this checkout; "and changes" where it holds others than those that are written here."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    try:
        others = [f":!{name}" for name in (PAGE, DATA, "tests/fuzz/corpus")]
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", *others)
        return git("rev-parse", "--short=12", "HEAD").strip() + (" and changes" if changed.strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


class Results:
    """The document, and the two files that are made of it in `out` (None: they are not). Several processes may put
    parts into the same files."""

    def __init__(self, out: pathlib.Path | None, afresh: bool, adds: bool = False) -> None:
        self.out, self._adds = out, adds
        self.document: dict[str, Any] = {"subjects": {}, "trials": []}
        if out and afresh:
            self._write()

    def put(
        self, trials: Iterable[Any], name: str, key: str, found: dict[str, Any], about: dict[str, Any]
    ) -> dict[str, Any]:
        """One part. What was counted earlier stays where it could not be tried now, and is added to where that was asked
        for. What there is of it then."""
        if not self.out:
            return self._put(trials, name, key, found, about)
        self.out.mkdir(parents=True, exist_ok=True)
        directory = os.open(self.out, os.O_RDONLY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            if (self.out / DATA).exists():
                self.document = json.loads((self.out / DATA).read_text(encoding="utf-8"))
            kept = self._put(trials, name, key, found, about)
            self._write()
            return kept
        finally:
            os.close(directory)

    def write_page(self) -> None:
        assert self.out
        document = json.loads((self.out / DATA).read_text(encoding="utf-8"))
        (self.out / PAGE).write_text(page.page(document), encoding="utf-8")

    def _put(
        self, trials: Iterable[Any], name: str, key: str, found: dict[str, Any], about: dict[str, Any]
    ) -> dict[str, Any]:
        known = {one["name"]: one for one in self.document["trials"]}
        for trial in trials:
            if trial.name != name and trial.name not in known:
                continue
            told = {"name": trial.name, "title": trial.title, "what": trial.what, "must": list(trial.must)}
            known[trial.name] = told | {"found": known.get(trial.name, {}).get("found", {})}
        parts = known[name]["found"]
        first = "skipped" in parts.get(key, {"skipped": ""})
        if "skipped" not in found or first:
            parts[key] = found if first or not self._adds else added(parts[key], found)
        parts = known[name]["found"] = {one: parts[one] for one in SUBJECTS if one in parts}
        order = [trial.name for trial in trials if trial.name in known]
        self.document["trials"] = [known[one] for one in order]
        subjects = self.document["subjects"]
        if "missing" not in about or "missing" in subjects.get(key, {"missing": ""}):
            subjects[key] = about
        self.document["subjects"] = {one: subjects[one] for one in SUBJECTS if one in subjects}
        return parts[key]

    def _write(self) -> None:
        texts = {DATA: json.dumps(self.document, indent=1) + "\n", PAGE: page.page(self.document)}
        for name, text in texts.items():
            (self.out / name).parent.mkdir(parents=True, exist_ok=True)
            partial = (self.out / name).with_suffix(".partial")
            partial.write_text(text, encoding="utf-8")
            partial.rename(self.out / name)
