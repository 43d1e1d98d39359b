"""Gathers the pages where they lie in the tree; what they link to that is no page becomes plain text."""

from __future__ import annotations

import os
import pathlib
import re
import shutil

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
START = {"README.md": "index.md"}
TOP = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")


def gather(root: pathlib.Path, to: pathlib.Path) -> None:
    """All pages and pictures of `root`, under `to`."""
    shutil.rmtree(to, ignore_errors=True)
    names = [*TOP, *(str(page.relative_to(root)) for page in sorted((root / "docs").rglob("*.md")))]
    pictures = [str(path.relative_to(root)) for path in sorted((root / "docs").rglob("*.svg"))]
    known = {name: START.get(name, name) for name in [*names, *pictures]}
    for name in pictures:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, to / name)
    for name in names:
        page = to / known[name]
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(as_page((root / name).read_text(), name, known))


def as_page(text: str, name: str, known: dict[str, str]) -> str:
    """The page `name` of the tree, as MkDocs reads it."""
    lines: list[str] = []
    fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        if not fenced and not line.startswith("```"):
            line = LINK.sub(lambda link: led(link, name, known), line)
            if (
                is_item(line)
                and lines
                and lines[-1].strip()
                and not is_item(lines[-1])
                and not lines[-1].startswith(" ")
            ):
                lines.append("")  # elsewhere a list may follow a paragraph at once
        lines.append(line)
    return "\n".join(lines) + "\n"


def is_item(line: str) -> bool:
    return re.match(r"([-*]|\d+\.) ", line) is not None


def led(link: re.Match[str], name: str, known: dict[str, str]) -> str:
    """A link of the page `name`, to where the site has its target."""
    image, words, target = link.groups()
    path, mark, anchor = target.partition("#")
    if "://" in target or not path:
        return link[0]
    inside = os.path.normpath(os.path.join(os.path.dirname(name), path))
    if inside not in known:
        return words
    here = os.path.dirname(known[name])
    return f"{image}[{words}]({os.path.relpath(known[inside], here or '.')}{mark}{anchor})"
