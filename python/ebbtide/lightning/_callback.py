"""Checkpoints of a run of Lightning's Trainer, and how it goes on after a crash."""

from __future__ import annotations

import os
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Checkpoint as _Checkpoint

from ebbtide import errors
from ebbtide._training.retention import Best, logged
from ebbtide.lightning import _shards
from ebbtide.lightning._replay import Replay
from ebbtide.torch import Manager, _rng

_SHARDED = "ModelParallelStrategy"
_STRATEGIES = ("SingleDeviceStrategy", "DDPStrategy", _SHARDED)


class Checkpoint(_Checkpoint):
    """Saves a run every so many steps, and ``Trainer.fit`` goes on where the newest intact checkpoint is.

    A save costs a copy of the state into memory; the rest happens in the background. A run that was stopped and resumed has the
    losses of one that was not, bit for bit, if its own operations are deterministic: saved are what Lightning saves (weights,
    optimizers, schedulers, loops, callbacks, the datamodule), the random number generators, and where in the epoch the run was.
    A save happens when the step's callbacks, its validation and its logging are over: as the next batch begins.

    directory: for the store. In a job of several ranks each has a store of its own in it.
    every_n_steps: the optimizer's steps (``trainer.global_step``) from one save to the next.
    keep_last, best: which checkpoints stay, as in :class:`ebbtide.torch.Manager`; the metric of ``best`` is one that the model
    logs. Until it is logged, a checkpoint is rated as the worst.
    options: as of :class:`ebbtide.torch.Manager`, and for :func:`ebbtide.open`.

    The first ``fit`` of this callback resumes; with ``ckpt_path`` it goes on where that says. The batches of an interrupted epoch are
    read again up to there, unless all loaders have a state (``state_dict`` and ``load_state_dict``). The training loader draws its
    random numbers from a seed, one for each epoch, so that it draws them again; what else a dataset keeps from one epoch to the next
    is not saved.

    Raises :class:`ebbtide.Unsupported` for a strategy that keeps the state to itself, and what
    :class:`ebbtide.torch.Manager` raises.

    >>> checkpoint = ebbtide.lightning.Checkpoint("run-7", every_n_steps=100, keep_last=3, best=("val_loss", 3))
    >>> lightning.Trainer(callbacks=[checkpoint]).fit(model, loader)
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        every_n_steps: int = 100,
        keep_last: int = 3,
        best: tuple[str, int] | tuple[str, int, str] | None = None,
        **options: Any,
    ) -> None:
        if type(every_n_steps) is not int or every_n_steps < 1:
            raise errors.InvalidArgument(f"every_n_steps={every_n_steps!r} is not valid: expected an int of at least 1")
        self._directory, self._every = directory, every_n_steps
        self._best = None if best is None else Best.of(best)
        self._options = {"keep_last": keep_last, "best": best, **options}
        self._manager: Manager | None = None
        self._strategy = ""
        self._fitted = False  # an earlier fit of this callback has resumed
        self._position: dict[str, Any] | None = None  # in the epoch, of the checkpoint that was loaded
        self._between: dict[str, Any] | None = None  # the generators of a checkpoint between two epochs
        self._step = 0
        self._due = False

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        mro = type(trainer.strategy).__mro__
        self._strategy = next(kind.__name__ for kind in mro if kind.__module__.startswith("lightning."))
        if self._strategy not in _STRATEGIES:
            raise errors.Unsupported(
                f"the strategy is {self._strategy}, which saves and loads its state by itself: use {', '.join(_STRATEGIES[:-1])} "
                f"or {_STRATEGIES[-1]}, or leave this callback out and let ModelCheckpoint save"
            )
        self._manager = Manager(self._directory, **self._options)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        connector = trainer._checkpoint_connector
        if not self._fitted and not connector._ckpt_path and self._open().resume():
            saved = dict(self._open().values)
            self._position, self._between = saved.pop("position"), saved.pop("between")
            trainer._logger_connector._callback_metrics.update(saved.pop("metrics"))
            connector._loaded_checkpoint = saved  # Lightning takes loops, optimizers and schedulers from there
            connector.restore_datamodule()
            connector.restore_model()
            connector.restore_callbacks()
            if self._strategy == _SHARDED:
                _shards.load(trainer, saved)
        self._fitted = True

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._step, self._due = trainer.global_step, False
        loop, resumed = trainer.fit_loop.epoch_loop, self._between is not None or self._position is not None
        self._attach(trainer)
        if self._between is not None:
            loop.scheduler_progress.reset_on_run()
            loop.automatic_optimization.optim_progress.reset_on_run()
            loop.val_loop.batch_progress.total.reset()
        if resumed:
            _skip_what_is_done(loop, trainer.fit_loop._data_fetcher)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        loader = self._attach(trainer)
        if self._between is not None:
            _rng.restore(self._between["rng"])
            loader.restore(self._between["generators"])
            self._between = None
            _begin_anew(trainer.fit_loop.epoch_loop)
        if self._due:
            self._save(trainer, None, {"epoch_progress": {"ready": 1}})

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any) -> None:
        if self._due:
            self._save(trainer, self._attach(trainer).position, {"epoch_loop.batch_progress": {"ready": 1}})

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any) -> None:
        self._due |= trainer.global_step // self._every > self._step // self._every
        self._step = trainer.global_step
        self._attach(trainer).wanted = self._due

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._due and trainer.fit_loop.epoch_loop._num_ready_batches_reached():
            self._save(trainer, None, {})
        elif self._due:  # within an epoch, which Lightning counts as over; a run that is given more steps continues it
            self._save(trainer, self._attach(trainer).here(), {"epoch_progress": {"processed": 1, "completed": 1}})

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self._close(exception)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self._close(None)

    def _attach(self, trainer: pl.Trainer) -> Replay:
        """The trainer's loader, which is made anew with its loaders (``reload_dataloaders_every_n_epochs``)."""
        fetcher = trainer.fit_loop._data_fetcher
        loader = fetcher.combined_loader
        if not isinstance(loader, Replay):
            loader.reset()
            loader = Replay(loader, self._position)
            fetcher.setup(loader)
            iter(fetcher)
            self._position = None
        return loader

    def _save(self, trainer: pl.Trainer, position: dict[str, Any] | None, undone: dict[str, dict[str, int]]) -> None:
        """``undone``: what the loops have counted of what comes next."""
        self._due = False
        checkpoint = self._dump(trainer)
        loops = checkpoint["loops"]["fit_loop"]
        for progress, counts in undone.items():
            for name, count in counts.items():
                for scope in ("total", "current"):
                    loops[progress][scope][name] -= count
        loops["state_dict"].pop("combined_loader", None)  # its loaders have drawn the next batch
        batches = loops["epoch_loop.batch_progress"]
        if position is None:
            batches["current"] = dict.fromkeys(batches["current"], 0)
        else:
            position["trained"] = batches["current"]["ready"]
            if position["trained"] != position["drawn"]:  # the fetcher holds a batch, which is to be drawn again
                position["now"] = None
        batches["is_last_batch"] = False
        between = None
        if position is None:
            between = {"rng": _rng.states(), "generators": self._attach(trainer).generators()}
        seen = dict(trainer.callback_metrics)  # schedulers and callbacks may look at one before it is logged again
        values = checkpoint | {"position": position, "between": between, "metrics": seen}
        if self._best is not None:
            values[self._best.name] = logged(self._best, seen, expected=trainer.current_epoch > 0)
        self._open().save(trainer.global_step, **values)

    def _dump(self, trainer: pl.Trainer) -> dict[str, Any]:
        checkpoint: dict[str, Any]
        if self._strategy == _SHARDED:
            with _shards.as_they_are(trainer):
                checkpoint = _shards.parts(trainer._checkpoint_connector.dump_checkpoint(weights_only=False))
        else:
            checkpoint = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        return checkpoint

    def _open(self) -> Manager:
        assert self._manager is not None, "setup opens it"
        return self._manager

    def _close(self, error: BaseException | None) -> None:
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.__exit__(type(error), error, None)


def _begin_anew(loop: Any) -> None:
    """A loop that is restarted between two epochs has read ahead before the epoch's hooks: it reads after them, as it did."""

    def begin(data_fetcher: Any) -> None:
        del loop.on_run_start
        iter(data_fetcher)
        loop.on_run_start(data_fetcher)

    loop.on_run_start = begin


def _skip_what_is_done(loop: Any, fetcher: Any) -> None:
    """A loop that is restarted where a validation was due does not validate again, but closes its last batch again."""
    if not (loop.restarting and loop._should_check_val_fx(fetcher)):
        return

    def nothing(data_fetcher: Any) -> None:
        del loop.on_advance_end
        loop._skip_next_val = False

    loop.on_advance_end = nothing
