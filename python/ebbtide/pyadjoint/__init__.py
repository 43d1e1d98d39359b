"""The checkpoints of a tape of pyadjoint in a store.

>>> ebbtide.pyadjoint.enable_checkpointing(store, schedule)  # in place of tape.enable_checkpointing(schedule)
"""

from ebbtide.pyadjoint._tape import enable_checkpointing

__all__ = ["enable_checkpointing"]
