"""Lightning's own checkpoints, in a store."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

from lightning.pytorch.plugins import CheckpointIO as _CheckpointIO
from lightning.pytorch.plugins import TorchCheckpointIO

import ebbtide
from ebbtide import errors
from ebbtide.torch import _state
from ebbtide.torch._described import Described

_STORE = "ebbtide"
_MARK = (
    "The checkpoint of this name is in the Ebbtide store beside this file; ebbtide.lightning.CheckpointIO reads it.\n"
)


class CheckpointIO(_CheckpointIO):
    """Where ``ModelCheckpoint`` and ``Trainer.save_checkpoint`` write, without waiting for the disk.

    A save costs a copy of the state into memory; the rest happens in the background. The store is the directory ``ebbtide``
    beside the checkpoints, each of which is a history of the name of its file. The file has one line, so that Lightning
    finds it: ``trainer.fit(ckpt_path=...)`` takes its path, in a trainer that has this plugin. What Lightning removes stays
    until a newer checkpoint is durable. For a resume with the same bits use :class:`Checkpoint`.

    pickle: True stores objects that are no tensors, arrays, numbers or text too; reading them runs their code.
    options: for :func:`ebbtide.open`; ``durability`` is ``"storage"`` unless it is given.

    Raises as :func:`ebbtide.open` and :meth:`ebbtide.History.checkpoint`, naming what cannot be stored, and FileNotFoundError for a
    checkpoint that is not there. For one thread.

    >>> trainer = lightning.Trainer(plugins=[ebbtide.lightning.CheckpointIO()])
    """

    def __init__(self, *, pickle: bool = False, **options: Any) -> None:
        self._may_pickle, self._options = pickle, {"durability": "storage"} | options
        self._described = Described()
        self._folders: dict[Path, _Folder] = {}

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Save a checkpoint under ``path``, which is on a local file system; a URL is refused."""
        if storage_options is not None:
            raise errors.InvalidArgument(
                "storage_options: a store has none; give CheckpointIO the options of ebbtide.open"
            )
        if "://" in os.fspath(path):
            raise errors.InvalidArgument(
                f"{path} is a URL: CheckpointIO saves on a local file system; leave the plugin out for this path"
            )
        place = Path(path).resolve()
        if place.parent not in self._folders:
            place.parent.mkdir(parents=True, exist_ok=True)
            self._folders[place.parent] = _Folder(ebbtide.open(place.parent / _STORE, **self._options))
        saved, _ = self._described.dump(checkpoint, may_pickle=self._may_pickle)
        self._folders[place.parent].save(place.name, saved)
        place.write_text(_MARK)

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """The checkpoint that was saved under ``path``. Its tensors are where :meth:`ebbtide.History.restore` makes them.

        What is not this plugin's (a checkpoint that PyTorch wrote, a URL) is loaded as Lightning loads it.
        """
        place = Path(path).resolve()
        if "://" in os.fspath(path) or (place.is_file() and not _is_mark(place)):
            given = {} if map_location is None else {"map_location": map_location}
            found: dict[str, Any] = TorchCheckpointIO().load_checkpoint(path, weights_only=weights_only, **given)
            return found
        if place.parent in self._folders:
            return self._load(self._folders[place.parent].store, place)
        if not (place.parent / _STORE).is_dir():
            raise FileNotFoundError(
                f"{path} is not there: {place.parent} has no store of ebbtide.lightning.CheckpointIO"
            )
        with ebbtide.open(place.parent / _STORE, readonly=True) as store:
            return self._load(store, place)

    def _load(self, store: ebbtide.Store, place: Path) -> dict[str, Any]:
        newest = store.latest(place.name)  # passes over what is damaged
        if newest is None:
            there = [name for name in store.histories() if store.latest(name) is not None]
            raise FileNotFoundError(
                f"{place} was not durable when its program ended, or is damaged; {place.parent} has "
                f"{', '.join(sorted(there)) or 'no other'}"
            )
        checkpoint = store.history(place.name).restore(newest, keep=True)
        return _state.load(checkpoint, may_pickle=self._may_pickle)

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Forget the checkpoint of ``path`` once a newer one in its directory is durable."""
        place = Path(path).resolve()
        if place.parent in self._folders:
            self._folders[place.parent].remove(place)

    def teardown(self) -> None:
        """Wait until all checkpoints are durable, and close their stores. Raises as :meth:`ebbtide.Store.close`."""
        while self._folders:
            self._folders.popitem()[1].close()


def _is_mark(place: Path) -> bool:
    with place.open("rb") as file:
        return _MARK.encode().startswith(file.read(len(_MARK)))  # a power failure may have cut it off


class _Folder:
    """The checkpoints of a directory: which are to be dropped, and when."""

    def __init__(self, store: ebbtide.Store) -> None:
        self.store = store
        self._newest: ebbtide.Future | None = None
        self._replaced: dict[str, tuple[list[int], ebbtide.Future]] = {}  # a history's versions, and what replaces them
        self._removed: list[Path] = []

    def save(self, name: str, saved: Any) -> None:
        self._tidy()
        history = self.store.history(name)
        versions = history.versions()
        self._newest = history.checkpoint(max(versions, default=-1) + 1, saved)
        if versions:
            self._replaced[name] = list(versions), self._newest
        self._removed = [place for place in self._removed if place.name != name]

    def remove(self, place: Path) -> None:
        self._removed.append(place)

    def close(self) -> None:
        try:
            for save in [self._newest, *(save for _, save in self._replaced.values())]:
                if save is not None:
                    save.wait(self.store.durability)
            self._tidy()
        finally:
            self.store.close()

    def _tidy(self) -> None:
        """What is replaced stays until its replacement is durable; what is removed, until the newest checkpoint is."""
        for name, (versions, save) in list(self._replaced.items()):
            if self._durable(save):
                for version in versions:
                    self.store.history(name).drop(version)
                del self._replaced[name]
        if self._removed and self._newest is not None and self._durable(self._newest):
            for place in self._removed:
                self._replaced.pop(place.name, None)
                self.store.history(place.name).drop()
                place.unlink(missing_ok=True)
            self._removed = []

    def _durable(self, save: ebbtide.Future) -> bool:
        try:
            return save.done(self.store.durability)
        except errors.Error as failure:
            warnings.warn(f"a checkpoint could not be saved: {failure}", RuntimeWarning, stacklevel=6)
            return False
