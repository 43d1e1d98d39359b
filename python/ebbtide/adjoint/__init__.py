"""Gradients of many steps by a schedule of checkpoint_schedules, with the checkpoints in a store.

>>> schedule = checkpoint_schedules.Revolve(1000, 20)
>>> ebbtide.adjoint.run(schedule, store.history("wave"), steps=1000, state=field, forward=advance, reverse=pull, seed=misfit)
"""

try:
    from checkpoint_schedules import Move  # noqa: F401
except ImportError as error:  # it is not there, or older than 1.0
    raise ImportError(
        "ebbtide.adjoint needs checkpoint_schedules 1: pip install 'checkpoint-schedules>=1.0'"
    ) from error

from ebbtide.adjoint._passes import Passes, run

__all__ = ["Passes", "run"]
