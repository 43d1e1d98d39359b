"""`ebbtide node`: the memory that this user's processes share on this node."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from . import names, outcome

app = typer.Typer(invoke_without_command=True)


@app.callback()
def _node(context: typer.Context, json: outcome.Json = False) -> None:
    """Show the pools of this user on this node and the memory that is lent, or drain pools."""
    if context.invoked_subcommand is None:
        show(json)
    elif json:
        with outcome.exit_codes(True):
            raise outcome.Refused("--json belongs behind `show` or `drain`")


@app.command(cls=outcome.Command)
def show(json: outcome.Json = False) -> None:
    """Show each pool: its job, store, agent and processes, and what is listed and not written yet; and who lends memory to whom.

    Nothing is changed, and no process is waited for.

    Exit code 0; 1: a pool cannot be read, and is named; 2: the directory of the pools cannot be read.
    """
    with outcome.exit_codes(json):
        from ebbtide import _core

        pools, lenders = _core.pools(), _core.lenders()
        if json:
            outcome.show_json({"pools": pools, "lenders": lenders})
        else:
            lines = [line for pool in pools for line in _lines(pool)]
            lines += [line for lender in lenders for line in _lender_lines(lender)]
            outcome.say("\n".join(lines) or "no pools, and no process lends memory")
        if any(pool["error"] for pool in pools):
            raise typer.Exit(outcome.DAMAGED)


@app.command(cls=outcome.Command)
def drain(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="As `ebbtide node` names it; all pools.")] = None,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0, help="For each pool.")] = 60,
    json: outcome.Json = False,
) -> None:
    """Write what is in pools to their own stores.

    Of a pool whose processes have all ended, everything is written, and the pool is removed. Of another one it waits
    until all that is handed over by now is written. A pool that is damaged, or of another version, is left as it is.

    Exit code 0; 2: a pool was not drained, and is named.
    """
    with outcome.exit_codes(json):
        import ebbtide
        from ebbtide import _core

        if job is None:
            jobs = [pool["job"] for pool in _core.pools()]
        else:
            jobs = [job]
        drained: list[dict[str, Any]] = []
        refused: list[dict[str, Any]] = []
        for one in jobs:
            try:
                drained.append({"job": one} | _core.drain(one, timeout))
            except ebbtide.Error as error:
                if job is None and error.reason == "lost":
                    continue  # it is gone since it was listed
                refused.append({"job": one, "reason": error.reason, "message": str(error)})
        if json:
            outcome.show_json({"drained": drained, "refused": refused})
        else:
            for done in drained:
                outcome.say(_drained(done))
            if not drained and not refused:
                outcome.say("no pools")
        for failure in refused:
            outcome.complain(f"ebbtide: {failure['job']}: {names.line(failure['message'])}")
        if refused:
            raise typer.Exit(outcome.REFUSED)


def _counted(number: int, size: int) -> str:
    from ebbtide import _core

    return f"{number} checkpoint{'s' * (number != 1)}, {_core.format_bytes(size)}"


def _drained(done: dict[str, Any]) -> str:
    end = "; the pool is removed" if done["removed"] else ""
    return f"{done['job']}: {_counted(done['checkpoints'], done['bytes'])} written{end}"


def _lender_lines(lender: dict[str, Any]) -> list[str]:
    from ebbtide import _core

    size = _core.format_bytes
    whose = "ordinary memory" if lender["gpu"] is None else f"memory of GPU {lender['gpu']}"
    pace = "" if lender["share"] == 1 else f", at {lender['share']:.3g} of its link's rate"
    lines = [f"{lender['group']}: process {lender['pid']} lends {size(lender['offered'])}, {whose}{pace}"]
    for lease in lender["leases"]:
        lines.append(f"  {size(lease['bytes'])} to process {lease['borrower']}, {lease['state']}")
    if more := lender["leases_not_shown"]:
        lines.append(f"  and {more} more lease{'s' * (more != 1)}")
    return lines


def _lines(pool: dict[str, Any]) -> list[str]:
    from ebbtide import _core

    if pool["error"]:
        return [f"{pool['job']}: {names.line(pool['error']['message'])}"]
    size = _core.format_bytes
    agent = pool["agent"]
    whose = "none" if agent["kind"] == "none" else f"a {agent['kind']}, process {agent['pid']}"
    if agent["kind"] != "none" and agent["pid"] is None:
        whose = "in another PID namespace"
    store = f"store {names.line(pool['store'])}" if pool["store"] else "ephemeral stores"
    lines = [
        f"{pool['job']}: {size(pool['budget'])} in chunks of {size(pool['chunk'])}, {store}",
        f"  agent: {whose}",
    ]
    for one in pool["processes"]:
        state = "alive in another PID namespace" if one["elsewhere"] else "alive" if one["alive"] else "dead"
        lines.append(
            f"  rank {one['rank']}, process {one['pid']}, {state}: share "
            f"{size(one['share'])}, {size(one['slabs'] * pool['slab'])} in {one['slabs']} slabs claimed; "
            f"not written: {_counted(one['checkpoints'], one['bytes'])}"
        )
    return lines
