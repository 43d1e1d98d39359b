"""`ebbtide sim spill`: the strategies of ebbtide.sim.spill compared, on one step or on a trace."""
