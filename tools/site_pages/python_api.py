"""The page of the Python interface, from its docstrings. Runs in the environment that has the package."""

from __future__ import annotations

import importlib
import inspect
import re
import types
from collections.abc import Iterator
from typing import Any

MODULES = ("ebbtide", "ebbtide.sim", "ebbtide.torch", "ebbtide.jax", "ebbtide.seismic")


def page() -> str:
    out = ["# Python", "", "What `help()` shows, on one page.", ""]
    for name in MODULES:
        out += [f"## {name}", ""]
        try:
            module = importlib.import_module(name)
        except ImportError as missing:  # an extra
            out += [f"To see it here, build the pages where its extra is installed: {missing}", ""]
            continue
        out += [*markdown(inspect.getdoc(module) or ""), ""]
        for member in module.__all__:
            out += entry(f"{name}.{member}", getattr(module, member))
    return "\n".join(out)


def entry(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, (types.ModuleType, str)):
        return
    yield from (f"### {name}", "")
    yield from described(value)
    if not inspect.isclass(value) or issubclass(value, BaseException):
        return
    for member, method in vars(value).items():
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
    """A docstring: names of others in plain code, sessions of the interpreter as such."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")
    session = False
    for line in text.splitlines():
        starts = line.lstrip().startswith((">>>", "..."))
        if starts and not session:
            yield from ("", "```pycon")
        elif session and not starts and not line.strip():
            yield "```"
            session = False
        session |= starts
        yield line
    if session:
        yield "```"


if __name__ == "__main__":
    print(page())
