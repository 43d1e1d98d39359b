"""The command ``ebbtide``: each command has a module of its own and is registered here."""

from __future__ import annotations

import importlib
import os
import sys

import typer

import ebbtide
from ebbtide.commands import outcome

app = typer.Typer(
    name="ebbtide",
    help="A checkpoint cache for programs that go back.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ebbtide {ebbtide.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """A checkpoint cache for programs that go back."""


def _register(name: str, where: str) -> None:
    """Adds the command or group of the module ``where``: its ``app`` (a group) or else its ``command``."""
    module = importlib.import_module(where)
    group = getattr(module, "app", None)
    if isinstance(group, typer.Typer):
        app.add_typer(group, name=name)
    else:
        app.command(name, cls=getattr(module, "cls", None))(module.command)


_COMMANDS = {
    "demo": "ebbtide.demo.command",
    "bench": "ebbtide.bench.command",
    "doctor": "ebbtide.doctor.command",
    "sim": "ebbtide.models.command",
    "plan": "ebbtide.models.efficiency.command",
    "estimate": "ebbtide.commands.estimate",
    "ls": "ebbtide.commands.ls",
    "verify": "ebbtide.commands.verify",
    "export": "ebbtide.commands.export",
    "gc": "ebbtide.commands.gc",
    "node": "ebbtide.commands.node",
    "lend": "ebbtide.commands.lend",
    "run": "ebbtide.commands.run",
    "suspend": "ebbtide.commands.suspend",
}
for _name, _where in _COMMANDS.items():
    _register(_name, _where)


def _open_closed_streams() -> None:
    """Redirects closed standard streams to nowhere, so that no file opened later gets their descriptors."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or open(os.devnull)
    sys.stdout = sys.stdout or open(os.devnull, "w")
    sys.stderr = sys.stderr or open(os.devnull, "w")


def main() -> None:
    """The entry point. An error of ebbtide becomes one line; anything else is a bug and keeps its traceback."""
    _open_closed_streams()
    try:
        app()
    except ebbtide.Error as error:
        outcome.complain(f"ebbtide: {error}")
        raise SystemExit(1) from error
