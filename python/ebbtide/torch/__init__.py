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

from ebbtide.torch._dcp import Reader, Writer
from ebbtide.torch._manager import Manager
from ebbtide.torch._offload import offload

del _torch

__all__ = ["Manager", "Reader", "Writer", "offload"]
