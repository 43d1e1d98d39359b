"""What a package of Python sources offers, read and not imported: its framework may not be installed here."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator

Named = ast.ClassDef | ast.FunctionDef


def docstring(package: pathlib.Path) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""


def members(package: pathlib.Path) -> Iterator[Named]:
    """What `__all__` names, in its order."""
    top = ast.parse((package / "__init__.py").read_text())
    names = next(ast.literal_eval(node.value) for node in top.body if isinstance(node, ast.Assign) and named_all(node))
    found = {
        node.name: node
        for source in sorted(package.glob("_*.py"))
        for node in ast.parse(source.read_text()).body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef))
    }
    for name in names:
        yield found[name]


def named_all(node: ast.Assign) -> bool:
    return isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__"


def methods(node: Named) -> Iterator[ast.FunctionDef]:
    """A class's public ones."""
    for one in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(one, ast.FunctionDef) and not one.name.startswith("_") and ast.get_docstring(one):
            yield one


def signature(node: Named) -> str:
    """As it is called: of a class that of its `__init__`."""
    made = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
    function = made if isinstance(node, ast.ClassDef) else node
    if function is None:
        return f"{node.name}()"
    arguments = function.args
    if isinstance(node, ast.ClassDef) or (arguments.args and arguments.args[0].arg == "self"):
        arguments.args = [one for one in arguments.args if one.arg != "self"]
    gives = f" -> {ast.unparse(function.returns)}" if function.returns and not isinstance(node, ast.ClassDef) else ""
    return f"{node.name}({ast.unparse(arguments)}){gives}"
