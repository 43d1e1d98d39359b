"""Checkpoints of a training run, and how it goes on after a crash."""

from __future__ import annotations

import operator
import os
from typing import Any, Literal

import torch

import ebbtide
from ebbtide import errors
from ebbtide._training.keeper import Keeper
from ebbtide.torch import _parts, _rng, _state
from ebbtide.torch._described import Described
from ebbtide.torch._lazy import Lazy
from ebbtide.torch._ranks import Ranks


class Manager(Keeper):
    """Saves a training run's state every so many steps, and resumes it where the newest intact checkpoint is.

    A save costs a copy of the state into memory; the rest happens in the background. Python's, NumPy's and PyTorch's random
    number generators are saved too, so a run that was killed and resumed ends with the same bits as one that was not, if its own
    operations are deterministic, and all state that it uses is saved.

    directory: a directory for the store, or an open persistent :class:`ebbtide.Store` (opened with ``readonly=True``, for
    :meth:`resume` alone). Under torch.distributed each rank has a
    store of its own in the directory, all ranks call :meth:`resume` and :meth:`step` alike, and they resume from the same step.
    every: :meth:`step` saves the multiples of it.
    keep_last, keep_every, best: once a newer one is durable, older checkpoints are dropped, except the newest so many (0: none
    is dropped), the multiples of ``keep_every``, and the best: ``best=("loss", 3)`` keeps those with the three lowest values of
    ``loss`` that :meth:`step` was given, ``("accuracy", 3, "max")`` with the highest.
    name: the history in the store.
    rng: False leaves the random number generators out.
    pickle: True stores objects that are no tensors, arrays, numbers or text too; reading them runs their code.
    stage: on a GPU, when a save copies. ``"now"``: in the program's stream, so what is called next runs after the copies.
    ``"lazy"``: beside it, and the next step of each optimizer that was given waits for them; what no optimizer owns (buffers,
    other tensors) is copied twice, first in the program's stream. Call :meth:`before_write` before anything but an optimizer's
    ``step`` writes to parameters, and before a captured step is replayed.
    warm: True makes all cache memory before the constructor returns, so that the first save costs what the later ones do.
    options: for :func:`ebbtide.open`; ``durability`` is ``"storage"`` unless it is given.

    Raises :class:`ebbtide.InvalidArgument` (an ephemeral store, a directory that another number of ranks wrote),
    :class:`ebbtide.Unsupported` (``stage="lazy"`` without a GPU) and what :func:`ebbtide.open` raises. For one thread.

    >>> with ebbtide.torch.Manager("run-7", every=10, keep_last=3, best=("loss", 3)) as manager:
    ...     for step in range(manager.resume(model=model, opt=opt, sched=sched), 1000):
    ...         loss = train(step)
    ...         manager.step(step, loss=loss)
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | ebbtide.Store,
        *,
        every: int = 1,
        keep_last: int = 3,
        keep_every: int = 0,
        best: tuple[str, int] | tuple[str, int, str] | None = None,
        name: str = "training",
        rng: bool = True,
        pickle: bool = False,
        stage: Literal["now", "lazy"] = "now",
        warm: bool = False,
        **options: Any,
    ) -> None:
        if stage not in ("now", "lazy"):
            raise errors.InvalidArgument(f'stage={stage!r} is not valid: expected "now" or "lazy"')
        self._lazy = Lazy() if stage == "lazy" else None
        ranks = Ranks()
        super().__init__(
            directory if isinstance(directory, ebbtide.Store) else ranks.directory(directory),
            ranks,
            every=every,
            keep_last=keep_last,
            keep_every=keep_every,
            best=best,
            name=name,
            warm=warm,
            **options,
        )
        self._with_rng, self._may_pickle = rng, pickle
        self.values: dict[str, Any] = {}
        """What the checkpoint that :meth:`resume` loaded has of what was given to :meth:`step` and is no object."""
        self._objects: dict[str, Any] = {}  # as given to resume
        self._described = Described()

    def resume(self, *, at_most: int | None = None, **objects: Any) -> int:
        """Load the newest checkpoint that is intact into ``objects``, and return the step to run next; 0 if there is none.

        objects: by the names under which :meth:`step` saved them: anything with ``state_dict`` and ``load_state_dict`` (models,
        optimizers, schedulers, stateful loaders), tensors, and generators of PyTorch and NumPy. From then on :meth:`step` saves
        them without being given them. What else was saved is in :attr:`values`.
        at_most: the newest one not above this step. Newer ones are dropped once the next is durable.

        A damaged checkpoint is skipped with a :class:`ebbtide.DamagedWarning`, and a store in which nothing was durable before is a
        RuntimeWarning. Before anything is loaded, the names of all
        objects, the names and shapes of the tensors in models, and the optimizers' numbers of parameters are compared: raises
        :class:`ebbtide.SizeMismatch` naming the leaf that differs, and :class:`ebbtide.InvalidArgument`. If an object's own
        ``load_state_dict`` raises, those before it have been loaded.
        """
        self._objects = dict(objects)
        found = self._newest(at_most, lambda checkpoint: _state.load(checkpoint, may_pickle=self._may_pickle))
        if found is None:
            return 0
        step, saved = found
        self._load(step, saved, objects)
        return step + 1

    def step(self, step: int, **state: Any) -> ebbtide.Future | None:
        """Save after ``step`` if it is a multiple of ``every``; else do nothing.

        state: what is to be saved beside what :meth:`resume` was given: objects as there, and any tree of tensors, arrays,
        numbers, text, bytes and None. The metric of ``best`` must be among it.
        Returns the future of the checkpoint: ``done("storage")`` says whether it is durable yet.

        Raises as :meth:`ebbtide.History.checkpoint`, naming what cannot be stored. A checkpoint that could not be written in the
        background is dropped by the next save with a RuntimeWarning, and an error of :meth:`wait` before that.
        """
        return self.save(step, **state) if self._is_due(step) else None

    def save(self, step: int, **state: Any) -> ebbtide.Future:
        """Save after ``step``, whatever ``every`` is: as :meth:`step` otherwise."""
        step = operator.index(step)
        parts = self._objects | state
        metrics = self._metrics_with(step, state)
        states = {name: _parts.state_of(name, part) for name, part in parts.items()}
        states |= {"/rng": _rng.states() if self._with_rng else None, "/metrics": metrics}
        if self._lazy is None:
            saved, leaves = self._described.dump(states, may_pickle=self._may_pickle)
            return self._write(step, saved, metrics, leaves)
        self._lazy.own(part for part in parts.values() if isinstance(part, torch.optim.Optimizer))
        saved, leaves = self._described.dump(states, may_pickle=self._may_pickle, bytes_of=self._lazy.bytes_of)
        try:
            return self._write(step, saved, metrics, leaves, stream=self._lazy.begin())
        finally:
            self._lazy.end()

    def before_write(self) -> None:
        """With ``stage="lazy"``: what is called on the current stream from now on waits for the copies of the last save.

        Optimizers that were given do so by themselves. The host does not wait. Otherwise it does nothing.

        >>> manager.step(step)
        >>> manager.before_write()
        >>> with torch.no_grad():
        ...     model.weight.clamp_(-1, 1)
        """
        if self._lazy is not None:
            self._lazy.before_write()

    def _load(self, step: int, saved: dict[str, Any], objects: dict[str, Any]) -> None:
        self.before_write()
        rng, metrics = saved.pop("/rng"), saved.pop("/metrics")
        for name, part in objects.items():
            if name not in saved:
                raise errors.SizeMismatch(
                    f"{name} is not in the checkpoint of step {step}, which has {', '.join(saved)}"
                )
            _parts.check(name, part, saved[name], step)
        for name, part in objects.items():
            _parts.load(name, part, saved.pop(name))
        self.values = saved
        self._metrics = metrics
        if rng is not None and self._with_rng:
            _rng.restore(rng)
