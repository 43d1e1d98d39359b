"""The page of the Python interface, from its docstrings. Runs in the environment that has the package."""

from __future__ import annotations

import ast
import importlib
import inspect
import pathlib
import re
import types
from collections.abc import Iterator
from typing import Any

import ebbtide
import read_sources

IMPORTED = ("ebbtide", "ebbtide.sim")
READ = ("torch", "lightning", "transformers", "jax", "adjoint", "pyadjoint", "seismic")  # which import a framework


def page() -> str:
    out = ["# Python", "", "What `help()` shows, on one page.", ""]
    for name in IMPORTED:
        module = importlib.import_module(name)
        out += [f"## {name}", "", *markdown(inspect.getdoc(module) or ""), ""]
        for member in module.__all__:
            out += entry(f"{name}.{member}", getattr(module, member))
    for name in READ:
        package = pathlib.Path(ebbtide.__file__).parent / name
        out += [f"## ebbtide.{name}", "", *markdown(read_sources.docstring(package)), ""]
        for node in read_sources.members(package):
            out += read(f"### ebbtide.{name}.{node.name}", node)
            for method in read_sources.methods(node):
                out += read(f"#### {node.name}.{method.name}", method)
    return "\n".join(out)


def read(heading: str, node: read_sources.Named) -> list[str]:
    text = markdown(ast.get_docstring(node) or "")
    return [heading, "", "```python", read_sources.signature(node), "```", "", *text, ""]


def entry(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, (types.ModuleType, str)):
        return
    yield from (f"### {name}", "")
    yield from described(value)
    if not inspect.isclass(value) or issubclass(value, BaseException):
        return
    own = [base for base in value.__mro__ if base is value or base.__module__ == "ebbtide._core"]
    hidden = [base for base in own if base is value or base.__name__ not in ebbtide.__all__]
    for member, method in {name: one for base in hidden for name, one in vars(base).items()}.items():
        if not member.startswith("_") and (inspect.getdoc(method) or callable(method)):
            yield from (f"#### {name.rpartition('.')[2]}.{member}", "")
            yield from described(method)


def described(value: Any) -> Iterator[str]:
    """Its signature, if it has one, and what it says of itself."""
    text = inspect.getdoc(value) or ""
    given = getattr(value, "__nb_signature__", None)
    if given:
        yield from ("```python", *(signature[0] for signature in given), "```", "")
        text = re.sub(r"\A(?:\w+\(.*\) -> .*\n+)+", "", text)
    elif callable(value) and not (inspect.isclass(value) and issubclass(value, BaseException)):
        try:
            yield from ("```python", f"{value.__name__}{inspect.signature(value)}", "```", "")
        except (TypeError, ValueError):
            pass
    yield from markdown(text)
    yield ""


def markdown(text: str) -> Iterator[str]:
    """A docstring: names of others in plain code, arguments as a list, sessions of the interpreter as such."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")
    session = listed = False
    for line in text.splitlines():
        starts = line.lstrip().startswith((">>>", "..."))
        if starts and not session:
            yield from ("", "```pycon")
        elif session and not starts and not line.strip():
            yield "```"
            session = False
        session |= starts
        argument = None if session else re.match(r"([a-z_]\w*(?:, [a-z_]\w*)*): ", line)
        if argument:  # an item for each, the first after an empty line
            yield from ([] if listed else [""])
            line = f"- **`{argument[1]}`**: {line[argument.end() :]}"
        listed = bool(argument) or (listed and bool(line.strip()))
        yield line
    if session:
        yield "```"


if __name__ == "__main__":
    print(page())
