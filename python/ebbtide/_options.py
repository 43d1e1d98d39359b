"""Parsers of the commands' options; errors name the option."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ._units import parse_size, parse_time_with_unit

ResultsFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the results to FILE.")]


def wrong(option: str, message: str) -> typer.BadParameter:
    """The refusal of `option`, to be raised."""
    return typer.BadParameter(message, param_hint=f"'{option}'")


def parsed(name: str, parse: Callable[[str], object], metavar: str, text: str, **more: Any) -> Any:
    """An option whose text `parse` reads. Named outright: some versions of Typer take a metavar for the option's name."""
    return typer.Option(name, parser=parse, metavar=metavar, help=text, **more)


def size_of(text: str) -> int:
    """A parser of sizes for Typer."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def time_of(text: str) -> float:
    """A parser of times for Typer."""
    try:
        return parse_time_with_unit(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
