"""For programs that train with PyTorch: :class:`Manager`, :class:`offload`, :class:`Writer` and :class:`Reader`.

>>> import ebbtide.torch
>>> with ebbtide.torch.Manager("run-7", every=10, keep_last=3) as manager:
...     for step in range(manager.resume(model=model, opt=opt), 1000):
...         train(step)
...         manager.step(step, loss=loss)
"""

try:
    import torch as _torch  # the framework: this package has no module of that name in it
except ImportError as error:
    raise ImportError('ebbtide.torch needs PyTorch: pip install "ebbtide[torch]"') from error

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ebbtide.torch._manager import Manager
from ebbtide.torch._offload import offload

if _TYPE_CHECKING:
    from ebbtide.torch._dcp import Reader, Writer

del _torch

__all__ = ["Manager", "Reader", "Writer", "offload"]


def __getattr__(name: str) -> _Any:
    """torch.distributed.checkpoint takes longer to import than all else together: it is imported by those who use it."""
    if name not in ("Reader", "Writer"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ebbtide.torch import _dcp

    globals().update(Reader=_dcp.Reader, Writer=_dcp.Writer)
    return globals()[name]
