"""Checkpoints of a run of Transformers' Trainer, and how it goes on after a crash."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.utils.data import IterableDataset
from transformers.trainer_callback import ExportableState

from ebbtide import errors
from ebbtide._training.retention import Best, logged
from ebbtide.torch import Manager, _rng
from ebbtide.transformers._again import draw_again, skip_again

_TYPES = ("NO", "MULTI_CPU", "MULTI_GPU")
_WRITTEN = ".ebbtide-resume-"  # the directories that resume() makes begin so


class Checkpoint(transformers.TrainerCallback):
    """Saves a run of Transformers' Trainer every so many steps, in the place of ``save_steps``, and resumes it.

    A save costs a copy of the state into memory; the rest happens in the background. A run that was stopped and resumed has the
    losses of one that was not, bit for bit, if its own operations are deterministic: saved are the model, the optimizer, the
    scheduler, the trainer's and its callbacks' states, the random number generators, and where in the epoch the run was. A save happens
    when the step's callbacks, its evaluation and its logging are over: as the next step begins.

    directory: for the store. In a job of several ranks each has a store of its own in it.
    every_n_steps: the optimizer's steps (``state.global_step``) from one save to the next.
    keep_last, best: which checkpoints stay, as in :class:`ebbtide.torch.Manager`; the metric of ``best`` is one that the trainer
    logs (``"eval_loss"``). Until it is logged, a checkpoint is rated as the worst.
    options: as of :class:`ebbtide.torch.Manager`, and for :func:`ebbtide.open`.

    >>> checkpoint = ebbtide.transformers.Checkpoint("run-7", every_n_steps=100, best=("eval_loss", 3))
    >>> args = transformers.TrainingArguments(save_strategy="no")
    >>> trainer = transformers.Trainer(model, args, train_dataset=data, callbacks=[checkpoint])
    >>> trainer.train(resume_from_checkpoint=checkpoint.resume(trainer))
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
        self._directory, self._every = Path(directory), every_n_steps
        self._best = None if best is None else Best.of(best)
        self._options = {"keep_last": keep_last, "best": best, **options}
        self._manager: Manager | None = None
        self._trainer: transformers.Trainer | None = None
        self._written: str | None = None  # a directory with what was loaded
        self._logged: dict[str, float] = {}
        self._return_to: dict[str, Any] | None = None
        self._began: dict[str, Any] = {}  # the generators' states as the epoch began,
        self._before: list[dict[str, Any]] = []  # and before each of the last two steps
        self._steps = 0  # of the epoch
        self._due = False

    def resume(self, trainer: transformers.Trainer) -> str | None:
        """What ``trainer.train(resume_from_checkpoint=...)`` is to be given: the newest intact checkpoint; None if there is none.

        A directory with the checkpoint as Transformers reads it, which is removed as training begins.

        Raises :class:`ebbtide.Unsupported` for a trainer whose state no rank can save by itself, and what
        :class:`ebbtide.torch.Manager` and its ``resume`` raise.
        """
        kind = trainer.accelerator.distributed_type.value
        if kind not in _TYPES:
            raise errors.Unsupported(
                f"the trainer is of Accelerate's type {kind}, which saves and loads its state by itself: use one of "
                f"{', '.join(_TYPES)}, or leave this callback out and set save_steps"
            )
        if self not in trainer.callback_handler.callbacks:
            raise errors.InvalidArgument("the trainer does not have this callback: give it callbacks=[checkpoint]")
        self.close()
        self._trainer, self._manager = trainer, Manager(self._directory, **self._options)
        for left in self._directory.glob(f"{_WRITTEN}*"):  # by a run that was killed before it began to train
            shutil.rmtree(left, ignore_errors=True)
        if not self._manager.resume():
            return None
        saved = self._manager.values
        self._return_to, self._logged = saved["position"], saved["logged"]
        self._written = tempfile.mkdtemp(prefix=_WRITTEN, dir=self._directory)
        files = {
            "pytorch_model.bin": "model",
            "optimizer.pt": "optimizer",
            "scheduler.pt": "scheduler",
            "scaler.pt": "scaler",
        }
        for file, part in files.items():
            if saved[part] is not None:
                torch.save(saved[part], Path(self._written) / file)
        (Path(self._written) / "trainer_state.json").write_text(saved["state"])
        return self._written

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._manager is None:
            raise errors.InvalidArgument(
                "the run was not resumed: call trainer.train(resume_from_checkpoint=checkpoint.resume(trainer))"
            )
        self._forget_written()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        back, self._return_to = self._return_to, None
        self._steps = 0
        if back is not None:
            _rng.restore(back["began"])
            self._steps = back["steps"]
            if self._steps and not args.ignore_data_skip:
                assert self._trainer is not None
                draw_again(back)
                if isinstance(self._trainer.train_dataset, IterableDataset) and not args.dataloader_num_workers:
                    warnings.warn(
                        "train_dataset is an IterableDataset that is read without workers: if it draws random numbers, it draws "
                        "others after this resume; dataloader_num_workers=1 has it draw the same",
                        RuntimeWarning,
                        stacklevel=2,
                    )
        self._began = _rng.states()
        self._before = back["before"] if back is not None and self._steps else [self._began]
        if self._due:
            self._save(state, control, **kwargs)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._due:
            self._save(state, control, **kwargs)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._steps += 1
        self._before = [*self._before[-1:], _rng.states()]
        self._due |= state.global_step % self._every == 0

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._before:
            self._before[-1] = _rng.states()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **kwargs: Any) -> None:
        self._logged |= {name: float(value) for name, value in logs.items() if isinstance(value, (int, float))}

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._due:
            self._save(state, control, **kwargs)
        self.close()

    def close(self) -> None:
        """Wait until all checkpoints are durable, and close the store. The end of ``train`` does so, unless it raises.

        Raises as :meth:`ebbtide.Store.close`.
        """
        skip_again()
        self._forget_written()
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.close()

    def _save(self, state: Any, control: Any, *, optimizer: Any, lr_scheduler: Any, **_: Any) -> None:
        assert self._manager is not None and self._trainer is not None
        self._due = False
        scaler = self._trainer.accelerator.scaler
        position = {"began": self._began, "before": self._before, "steps": self._steps}
        if float(state.epoch).is_integer():  # between two epochs
            position = {"began": _rng.states(), "before": [], "steps": 0}
        parts = {
            "model": self._trainer.model.state_dict(),  # as it was before it was wrapped
            "optimizer": optimizer.state_dict(),
            "scheduler": lr_scheduler.state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
            "state": self._state(state, control),
            "position": position,
            "logged": dict(self._logged),
        }
        if self._best is not None:
            parts[self._best.name] = logged(self._best, self._logged, expected=state.epoch >= 1)
        self._manager.save(state.global_step, **parts)

    def _state(self, state: Any, control: Any) -> str:
        assert self._trainer is not None
        states: dict[str, Any] = {}
        callbacks = [one for one in self._trainer.callback_handler.callbacks if isinstance(one, ExportableState)]
        for callback in [*callbacks, dataclasses.replace(control, should_training_stop=False)]:
            states.setdefault(type(callback).__name__, []).append(callback.state())
        whole = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
        whole["stateful_callbacks"] = {name: found if len(found) > 1 else found[0] for name, found in states.items()}
        return json.dumps(whole)

    def _forget_written(self) -> None:
        if self._written is not None:
            shutil.rmtree(self._written, ignore_errors=True)
            self._written = None
