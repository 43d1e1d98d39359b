"""Histories that live as long as the object that writes them."""

from __future__ import annotations

import itertools
import weakref
from typing import Literal

import ebbtide
from ebbtide import errors

_sequence = itertools.count()


def history_of(owner: object, store: ebbtide.Store, name: str, order: Literal["lifo"] | None = None) -> ebbtide.History:
    """A new history of ``store``, whose name begins with ``name``. It is dropped when ``owner`` is gone."""
    history = store.history(f"{name}-{next(_sequence)}", order=order)
    weakref.finalize(owner, drop, history).atexit = False
    return history


def drop(history: ebbtide.History, *version: int) -> None:
    """As :meth:`ebbtide.History.drop`, for finalizers."""
    try:
        history.drop(*version)
    except (errors.Closed, errors.Unsupported):  # Unsupported: in a process that was forked, whose objects are copies
        pass
