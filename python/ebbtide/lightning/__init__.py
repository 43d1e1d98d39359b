"""For programs that train with Lightning: :class:`Checkpoint`, a callback, and :class:`CheckpointIO`, a plugin.

>>> import ebbtide.lightning
>>> checkpoint = ebbtide.lightning.Checkpoint("run-7", every_n_steps=100, keep_last=3)
>>> lightning.Trainer(callbacks=[checkpoint]).fit(model, loader)
"""

try:
    import lightning.pytorch as _pl
except ImportError as error:
    raise ImportError('ebbtide.lightning needs Lightning: pip install "ebbtide[lightning]"') from error

if tuple(map(int, _pl.__version__.split(".")[:2])) < (2, 6):
    raise ImportError(
        f"ebbtide.lightning needs Lightning 2.6 or later, and {_pl.__version__} is installed: "
        'pip install --upgrade "lightning>=2.6"'
    )

from ebbtide.lightning._callback import Checkpoint
from ebbtide.lightning._plugin import CheckpointIO

__all__ = ["Checkpoint", "CheckpointIO"]
