"""The README as a package's page shows it: a link into the tree leads to the project's home, or is plain text without one."""

from __future__ import annotations

import re

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def packaged(text: str, home: str | None) -> str:
    """`text` with no relative link. `home`: the address under which the tree's files lie."""

    def absolute(link: re.Match[str]) -> str:
        image, words, target = link.groups()
        if "://" in target or target.startswith("#"):
            return link[0]
        if home:
            return f"{image}[{words}]({home.rstrip('/')}/{target})"
        return "" if image else words

    return LINK.sub(absolute, text)
