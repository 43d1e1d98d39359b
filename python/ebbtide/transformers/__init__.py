"""For programs that train with Transformers: :class:`Checkpoint`, a callback of its Trainer.

>>> import ebbtide.transformers
>>> checkpoint = ebbtide.transformers.Checkpoint("run-7", every_n_steps=100, keep_last=3)
>>> trainer = transformers.Trainer(model, args, train_dataset=data, callbacks=[checkpoint])
>>> trainer.train(resume_from_checkpoint=checkpoint.resume(trainer))
"""

try:
    import transformers as _transformers
except ImportError as error:
    raise ImportError('ebbtide.transformers needs Transformers: pip install "ebbtide[transformers]"') from error

if int(_transformers.__version__.split(".")[0]) < 5:
    raise ImportError(
        f"ebbtide.transformers needs Transformers 5 or later, and {_transformers.__version__} is installed: "
        'pip install --upgrade "transformers>=5"'
    )

from ebbtide.transformers._callback import Checkpoint

__all__ = ["Checkpoint"]
