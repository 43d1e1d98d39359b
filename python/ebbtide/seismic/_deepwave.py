"""deepwave's callbacks: the forward wavefields go into a store and come back for the imaging condition."""

from __future__ import annotations

from typing import Any, Literal

import ebbtide
from ebbtide import errors
from ebbtide._training.histories import history_of


class Wavefields:
    """A ``forward_callback`` that stores the wavefield each time it is called, last in first out.

    store: an ephemeral :class:`ebbtide.Store`, on the GPU if the wavefields are.
    names: the wavefields of deepwave's state that are stored.
    view: ``"inner"`` (the model's region), ``"pml"`` or ``"full"``.

    One object holds one pass: where a call of deepwave begins, at step 0, the wavefields of the call before are dropped, and its
    backward pass is refused from then on. Two calls that go back later need an object each. What is stored is dropped with the
    object. Raises :class:`ebbtide.InvalidArgument` (a persistent store), and as :meth:`ebbtide.History.checkpoint`.

    >>> wavefields = ebbtide.seismic.Wavefields(store)
    >>> deepwave.scalar(v, ..., forward_callback=wavefields, backward_callback=lambda state: use(wavefields.at(state)))
    """

    def __init__(
        self,
        store: ebbtide.Store,
        names: tuple[str, ...] = ("wavefield_0",),
        view: Literal["inner", "pml", "full"] = "inner",
    ) -> None:
        if store.durability != "ephemeral":
            raise errors.InvalidArgument(
                "the store is persistent: wavefields need one that forgets them (an ephemeral one)"
            )
        if isinstance(names, str):
            raise errors.InvalidArgument(f"names={names!r} is not valid: expected a tuple of names")
        self.names, self.view = names, view
        self.history = history_of(self, store, "wavefields", "lifo")
        self._call: object = None  # of deepwave, whose wavefields are stored

    def __call__(self, state: Any) -> None:
        if state.step == 0:
            self.history.drop()
            self._call = _call_of(state)
        fields = {name: state.get_wavefield(name, self.view).contiguous() for name in self.names}
        self.history.checkpoint(state.step, fields)

    def at(self, state: Any) -> dict[str, Any]:
        """The forward wavefields of the step of ``state``, which a ``backward_callback`` was given. They are consumed.

        Raises :class:`ebbtide.InvalidArgument` if the forward pass of the same call did not call at that step, and if another
        call of deepwave has used the object since.
        """
        if not hasattr(state, "step"):
            raise errors.InvalidArgument(
                f"state={state!r} is not valid: expected what deepwave gives a backward_callback, whose call it belongs to"
            )
        if _call_of(state) is not self._call:
            raise errors.InvalidArgument(
                "this backward pass is of another call of deepwave than the last that stored its wavefields here: give each call "
                "that is to go back later a Wavefields of its own"
            )
        try:
            found: dict[str, Any] = self.history.restore(state.step)
            return found
        except errors.UnknownVersion as error:
            raise errors.InvalidArgument(
                f"the forward pass stored no wavefield of step {state.step}: deepwave calls back at the same steps in both passes "
                "only if the number of time steps is a multiple of callback_frequency"
            ) from error


def _call_of(state: Any) -> object:
    """What both passes of one call have in common, and no other call: deepwave makes this list anew in each call."""
    return state._pml_width


class CrossCorrelation:
    """A ``backward_callback`` that adds up the product of the forward and the adjoint wavefield: an image, as in reverse time
    migration.

    wavefields: the ``forward_callback`` of the same call.
    name: the wavefield of both passes.

    :attr:`image` has the shape of the wavefields' ``view``: with ``"inner"``, of the model. It is the sum over shots and, if the
    object is used again, over calls; None before the first.

    >>> image = ebbtide.seismic.CrossCorrelation(wavefields)
    >>> deepwave.scalar(v, ..., forward_callback=wavefields, backward_callback=image)[-1].backward(observed)
    >>> image.image
    """

    def __init__(self, wavefields: Wavefields, name: str = "wavefield_0") -> None:
        if name not in wavefields.names:
            raise errors.InvalidArgument(f"name={name!r} is not stored: expected one of {', '.join(wavefields.names)}")
        self.image: Any = None
        self._wavefields, self._name = wavefields, name

    def __call__(self, state: Any) -> None:
        forward = self._wavefields.at(state)[self._name]
        product = (forward * state.get_wavefield(self._name, self._wavefields.view)).sum(0)
        self.image = product if self.image is None else self.image.add_(product)
