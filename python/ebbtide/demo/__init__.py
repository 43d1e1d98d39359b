"""`ebbtide demo`: reverse time migration of a salt model, its forward wavefields kept in an Ebbtide store.

The parts, from the ground up: `model` (what the earth looks like), `survey` (where and how long it is shot), `wave` (the
finite-difference propagator), `imaging` (from wavefields to an image), `migration` (the loop over shots and the History
that the wavefields go through), `replay` (the same sizes and order against plain files), `figures`, `screen`, `command`.
"""
