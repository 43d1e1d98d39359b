"""Each promise of docs/durability.md is held by a test: every cell of its table names one that exists."""

import itertools
import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "durability.md"
# What needs no test, for there is nothing that could be otherwise.
# The agent of a pool writes its store with the code that the column `storage` is about.
NOTHING = {"nothing", "there is none", "cannot happen: it has no name", "it reads no headers", "as `storage`"}


def cells() -> dict[str, str]:
    """What the tables say, by "fault: level"."""
    rows = [line.strip("|").split("|") for line in PAGE.read_text().splitlines() if line.startswith("|")]
    headers = [i for i, row in enumerate(rows) if row[0].strip() == "fault"]
    found, every = {}, []
    for header, end in itertools.pairwise([*headers, len(rows)]):
        levels = [name.strip(" `") for name in rows[header][1:]]
        every += levels
        for row in rows[header + 2 : end]:
            for level, cell in zip(levels, row[1:], strict=True):
                found[f"{row[0].strip()}: {level}"] = cell.strip()
    assert every == ["ephemeral", "process", "storage", "node"]
    return found


def named(cell: str) -> list[tuple[str, str]]:
    return re.findall(r"\[`([^`]+)`\]\(([^)]+)\)", cell)


def exists(name: str, path: pathlib.Path) -> bool:
    text = path.read_text()
    if path.suffix == ".py":
        functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
        return name.startswith("test_") and name in {function.name for function in functions}
    if "." in name:
        suite, test = name.split(".")
        return re.search(rf"^TEST(_F|_P)?\({suite}, {test}\)", text, re.MULTILINE) is not None
    if name.startswith("run_"):  # a trial, whose short form is a test
        listed = (ROOT / "reliability/cpp/main.cpp").read_text()
        return (
            re.search(rf",\s+{name}}}", listed)
            and re.search(rf"^void {name}\([^)]*\) {{\n", text, re.MULTILINE) is not None
        )
    return re.search(rf"^static void {name}\(", text, re.MULTILINE) is not None


def test_the_table_is_there():
    assert len(cells()) >= 3 * 20


@pytest.mark.parametrize("where", cells())
def test_each_promise_names_tests_that_exist(where):
    cell = cells()[where]
    tests = named(cell)
    assert tests or cell in NOTHING, f"{cell!r} is promised and held by no test"
    missing = [f"{path}::{name}" for name, path in tests if not exists(name, (PAGE.parent / path).resolve())]
    assert not missing
