"""Ways of keeping a program's state, ours and others', behind one interface: for the trials and the benchmarks.

Each is used as its documentation says that it should be used for a restart after a crash, and with what the
documentation leaves to the program (a sync, a rename, trying the checkpoint before) done by the adapter. Nothing
is imported before it is needed: a library that is not installed is left out by name.
"""

from __future__ import annotations

import importlib
from importlib import metadata

from peers.base import Restart, Saver, sync_tree

__all__ = ["KEYS", "Restart", "Saver", "adapter", "sync_tree", "versions"]

# Key of a way to the module and class that have it, in the order of the tables.
_PLACES = {
    "ebbtide": ("ours", "Ebbtide"),
    "ebbtide_reserve": ("ours", "EbbtideReserve"),
    "ebbtide_torch": ("ours_torch", "EbbtideTorch"),
    "torch_save": ("torch_save", "TorchSave"),
    "dcp": ("dcp", "Dcp"),
    "dcp_async": ("dcp", "DcpAsync"),
    "orbax": ("orbax", "Orbax"),
    "orbax_async": ("orbax", "OrbaxAsync"),
    "orbax_jax_async": ("orbax", "OrbaxJaxAsync"),
    "safetensors": ("safe", "Safetensors"),
}
KEYS = tuple(_PLACES)


def adapter(key: str) -> type[Saver]:
    """Its class. Raises ImportError, naming the library, where that is not installed."""
    module, name = _PLACES[key]
    return getattr(importlib.import_module(f"peers.{module}"), name)


def versions(kind: type[Saver]) -> str:
    """ "torch 2.13.0", for the tables."""
    return ", ".join(f"{package} {_version(package)}" for package in kind.packages)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # on PYTHONPATH, not installed
        return importlib.import_module(package).__version__
