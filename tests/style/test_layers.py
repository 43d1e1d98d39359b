"""The layers of `python/ebbtide`: a package imports only those below it."""

import ast
import graphlib
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python/ebbtide"
ROOT = "ebbtide"  # the package's own __init__: what a user imports

# Which packages and modules each may import, its own aside. A folder of models/ counts by itself.
BELOW = {
    "_core": set(),
    "_models": set(),
    "errors": set(),
    "types": set(),
    "_plots": set(),
    "_traces": set(),
    "_arrays": {"errors"},
    "_trees": {"errors"},
    "_units": {"_core", "errors"},
    "_options": {"_units"},
    "_files": {"_core"},
    "_futures": {"_core", "errors"},
    "_open": {"_core", "errors"},
    "sim": {"_core", "_models", "_units", "errors"},
    ROOT: {"_arrays", "_core", "_files", "_futures", "_open", "_trees", "errors", "sim", "types"},
    "_machine": {ROOT, "_core", "_options"},
    "_training": {ROOT, "_core", "errors"},
    "mpi": {ROOT, "_core", "errors"},
    "torch": {ROOT, "_arrays", "_core", "_training", "_trees", "errors"},
    "lightning": {ROOT, "_training", "errors", "torch"},
    "transformers": {ROOT, "_training", "errors", "torch"},
    "jax": {ROOT, "_training", "errors"},
    "seismic": {ROOT, "_training", "errors"},
    "adjoint": {ROOT, "_training", "errors"},
    "pyadjoint": {ROOT, "_training", "errors"},
    "models.zones": {"_options", "errors", "sim"},
    "models.efficiency": {"_options", "_units", "errors", "models.zones", "sim"},
    "models.preemption": {"_options", "_units", "errors"},
    "models.cluster": {"_models", "_options", "errors", "models.efficiency", "sim"},
    "models.spill": {"_options", "_plots", "_traces", "_units", "errors", "sim"},
    "models": {"models.cluster", "models.preemption", "models.spill", "models.zones"},
    "bench": {
        ROOT,
        "_core",
        "_machine",
        "_options",
        "_plots",
        "_traces",
        "_units",
        "models.efficiency",
        "models.spill",
        "sim",
    },
    "demo": {ROOT, "_machine", "_options", "_plots", "_units"},
    "doctor": {ROOT, "_core", "_machine", "_options", "_units"},
    "commands": {ROOT, "_arrays", "_core", "_units", "sim"},
    "cli": {ROOT, "bench", "commands", "demo", "doctor", "models", "models.efficiency"},
}


def module_of(path: pathlib.Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py*"))}


def layer(module: str) -> str:
    """The entry of BELOW that a module of ours belongs to."""
    parts = module.split(".")[1:]
    return next(name for name in (".".join(parts[:2]), ".".join(parts[:1]) or ROOT) if name in BELOW)


def imported(module: str, path: pathlib.Path) -> set[str]:
    """The modules of ours that a file imports, anywhere in it; a module's name as a string is an import too."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) + 1 - node.level]) if node.level else ""
            source = ".".join(part for part in (base, node.module) if part)
            names = [name if (name := f"{source}.{alias.name}") in MODULES else source for alias in node.names]
        elif isinstance(node, ast.Constant) and node.value in MODULES and node.value != ROOT:
            names = [node.value]
        else:
            continue
        found |= {name for name in names if name.split(".")[0] == ROOT}
    return found - {module}


GRAPH = {module: imported(module, path) for module, path in MODULES.items() if path.suffix == ".py"}


def test_every_package_is_known():
    entries = {path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix in (".py", ".pyi")}
    folders = {f"models.{path.name}" for path in (PACKAGE / "models").iterdir() if path.is_dir()}
    assert (entries | folders) - {"__init__", "__pycache__", "models.__pycache__"} == set(BELOW) - {ROOT}


@pytest.mark.parametrize("name", BELOW)
def test_package_imports_only_those_below(name):
    wrong = [
        f"{module}: {other}"
        for module, others in GRAPH.items()
        if layer(module) == name
        for other in sorted(others)
        if layer(other) not in BELOW[name] | {name}
    ]
    assert not wrong


def test_layers_form_no_circle():
    list(graphlib.TopologicalSorter(BELOW).static_order())  # raises CycleError


def test_modules_form_no_circle():
    list(graphlib.TopologicalSorter(GRAPH).static_order())
