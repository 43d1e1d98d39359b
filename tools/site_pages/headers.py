"""Pages of the C and C++ interfaces, from the headers' own comments."""

from __future__ import annotations

import pathlib
import re

ORDER = (
    "store",
    "options",
    "checkpoint",
    "file",
    "snapshot",
    "stats",
    "error",
    "units",
    "admin",
    "node",
    "machine",
    "lent_pages",
)


def cpp_page(include: pathlib.Path) -> str:
    """Every C++ header: what it opens with, then its declarations as they are, a chapter for each class."""
    out = ["# C++", "", "Everything is in the namespace `ebb`; `find_package(ebbtide)`, `ebbtide::ebbtide`, C++20.", ""]
    for name in ORDER:
        text = (include / f"{name}.hpp").read_text()
        introduction, rest = opening(text, "//")
        out += [f"## ebbtide/{name}.hpp", "", *introduction, ""]
        for title, block in chapters(rest):
            said, declaration = about(block)
            out += [f"### {title}", "", *prose(said), "", "```cpp", *declaration, "```", ""]
    return "\n".join(out)


def c_page(header: pathlib.Path) -> str:
    """The C header: its introduction, then its declarations, a chapter for each comment that stands alone."""
    text = header.read_text()
    begin, end = text.index("/*"), text.index("*/")
    introduction = [re.sub(r"^\s?\*? ?", "", line) for line in text[begin + 2 : end].splitlines()]
    body = text[end + 2 :]
    body = body[: body.rindex("#ifdef __cplusplus")]
    lines = [line for line in body.splitlines() if not re.match(r"#(ifdef|endif|include)|extern \"C\"|\}$", line)]
    out = ["# C", "", *prose(introduction), ""]
    for block in re.split(r"\n\n+", "\n".join(lines).strip()):
        names = re.findall(r"\b(ebb_\w+)\s*\(", re.sub(r"/\*.*?\*/", "", block, flags=re.DOTALL))
        kinds = re.findall(r"^(?:typedef )?(?:enum|struct) (ebb_\w+)", block, re.MULTILINE)
        title = ", ".join(f"`{one}`" for one in dict.fromkeys(kinds or names))
        out += [*([f"## {title}", ""] if title else []), "```c", block, "```", ""]
    return "\n".join(out)


def opening(text: str, mark: str) -> tuple[list[str], str]:
    """The comment at a header's top as a page's lines, and the rest."""
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(mark))
    end = at
    while end < len(lines) and lines[end].startswith(mark):
        end += 1
    return prose([line[len(mark) :].removeprefix(" ") for line in lines[at:end]]), "\n".join(lines[end:])


def prose(lines: list[str]) -> list[str]:
    """A comment's lines, its indented parts as code."""
    out: list[str] = []
    code = False
    for i, line in enumerate(lines):
        is_code = (
            line.startswith("  ")
            and not line.lstrip().startswith("- ")
            and (code or i == 0 or not lines[i - 1].startswith("- "))
        )
        if is_code != code and (is_code or line.strip()):
            out += ["", "```cpp"] if is_code else ["```", ""]
            code = is_code
        if not code and line.startswith("- ") and out and out[-1] and not out[-1].startswith(("- ", "  ")):
            out.append("")
        out.append(line[2:] if code else line.rstrip())
    return [*out, *(["```"] if code else [])]


def chapters(text: str) -> list[tuple[str, list[str]]]:
    """What a header declares in `ebb`, by class, enumeration or function, without what is private."""
    found: list[tuple[str, list[str]]] = []
    block: list[str] = []
    depth, hidden = 0, False
    for line in text.splitlines():
        if re.match(r"#|namespace \w|\}  // namespace", line):
            continue
        if depth == 0 and not line.strip():
            if block:
                found.append((title_of(block), block))
            block = []
            continue
        hidden = depth > 0 and (line.strip() == "private:" or hidden)
        depth += line.count("{") - line.count("}")
        if depth == 0:
            hidden = False
        if not hidden:
            block.append(line)
    if block:
        found.append((title_of(block), block))
    return [(title, block) for title, block in found if title]


def title_of(block: list[str]) -> str:
    """The names that it declares; empty for forward declarations alone."""
    code = "\n".join(line for line in block if not line.lstrip().startswith("//"))
    code = re.sub(r"^(?:class|struct) \w+;\n?", "", code, flags=re.MULTILINE)
    kinds = re.findall(r"^(?:enum class|class|struct) (?:\[\[\w+\]\] )?(\w+)\b", code, re.MULTILINE)
    names = kinds or re.findall(r"^(?! |return|requires)[^(=\n]*?\b(\w+)(?=\(| =)", code, re.MULTILINE)
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names))


def about(block: list[str]) -> tuple[list[str], list[str]]:
    """What a declaration opens with, as text, and the declaration."""
    end = next((i for i, line in enumerate(block) if not line.startswith("///")), len(block))
    return [line[3:].removeprefix(" ") for line in block[:end]], block[end:]
