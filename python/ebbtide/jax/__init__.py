"""For programs in JAX: :func:`adjoint` and :class:`Manager`."""

try:
    import jax as _jax
except ImportError as error:
    raise ImportError('ebbtide.jax needs JAX: pip install "ebbtide[jax]"') from error

from ebbtide.jax._adjoint import adjoint
from ebbtide.jax._manager import Manager

del _jax

__all__ = ["Manager", "adjoint"]
