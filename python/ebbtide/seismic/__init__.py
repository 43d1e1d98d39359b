"""For seismic codes: callbacks for deepwave, and a storage for pyrevolve, which Devito's checkpointing uses.

>>> wavefields = ebbtide.seismic.Wavefields(store)
>>> image = ebbtide.seismic.CrossCorrelation(wavefields)
>>> receivers = deepwave.scalar(v, ..., storage_mode="none", forward_callback=wavefields, backward_callback=image)[-1]
>>> receivers.backward(observed)
>>> image.image
"""

from ebbtide.seismic._deepwave import CrossCorrelation, Wavefields
from ebbtide.seismic._pyrevolve import Storage

__all__ = ["CrossCorrelation", "Storage", "Wavefields"]
