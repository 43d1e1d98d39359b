"""`ebbtide demo`: reverse time migration of a salt model, its forward wavefields kept in an Ebbtide store.

Two dimensions on the processor, three on a GPU: one code, of arrays that `bench.device` places.

The parts, from the ground up: `model` (what the earth looks like), `survey` (where and how long it is shot), `wave`
(the finite-difference propagator), `imaging` (from wavefields to an image), `migration` (one shot, and the History that
its wavefield goes through), `replay` (the same sizes and order against plain files), `job` (these put together),
`figures`, `screen`, `report`, `command`.
"""
