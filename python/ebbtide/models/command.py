"""`ebbtide sim`: what machines would do."""

from __future__ import annotations

import typer

from ebbtide.models.cluster.command import cluster
from ebbtide.models.preemption.command import preempt
from ebbtide.models.spill.command import lent, spill
from ebbtide.models.zones.command import zones

app = typer.Typer(help="What machines would do, in virtual time.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    """What machines would do, in virtual time."""


app.command()(spill)
app.command()(lent)
app.command()(zones)
app.command()(preempt)
app.command()(cluster)
