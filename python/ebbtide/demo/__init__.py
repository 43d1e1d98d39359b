"""`ebbtide demo`: reverse time migration of a salt model, with its forward wavefields in an Ebbtide store.

Two dimensions on the processor, three on a GPU: one code, on arrays that `_machine.device` allocates.

The parts, from the ground up: `model` (the earth), `survey` (where and how long it is shot), `wave`
(the finite-difference propagator), `imaging` (from wavefields to an image), `migration` (one shot, and the History that
its wavefield goes through), `replay` (the same sizes and order against plain files), `job` (these put together),
`figures`, `screen`, `report`, `command`.
"""
