"""One word for one thing."""

import collections
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Nouns that any part could want. Each names one type at most, which another part spells out: `ByteRange`, not `Place`.
SHORT = "Part Request Peer Place Segment Use State Locked Piece".split()
DEFINED = re.compile(
    rf"^\s*(?:(?:struct|class|enum class) ({'|'.join(SHORT)})\b[^;]*$|using ({'|'.join(SHORT)}) =)", re.M
)


def test_a_short_noun_names_one_type():
    found = collections.defaultdict(list)
    for folder in ("src", "include", "python/src"):
        for path in sorted((ROOT / folder).rglob("*.[ch]pp")):
            for match in DEFINED.finditer(path.read_text()):
                line = match.string[match.start() : match.string.find("\n", match.end())]
                noun = match[1] or match[2]
                if not re.search(rf"::{noun};", line):  # the same type in a room's own words
                    found[noun].append(path.relative_to(ROOT).as_posix())
    assert {noun: places for noun, places in found.items() if len(places) > 1} == {}
