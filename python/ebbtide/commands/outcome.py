"""How a command ends: its exit code, and the message of a refusal."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from typer.core import TyperCommand

import ebbtide

from . import names

_UsageError: Any = typer.BadParameter.__base__  # Click's, which Typer may carry inside

OK, DAMAGED, REFUSED, INTERRUPTED = 0, 1, 2, 130
MOST = 2**63 - 1  # of any count

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Shared = Annotated[
    Path | None, typer.Option("--shared", metavar="DIR2", help="The store's shared directory, to be looked at as well.")
]
Alone = Annotated[
    bool, typer.Option("--alone", help="DIR alone, also where it is the local directory of a store with a shared one.")
]


class Refused(Exception):
    """The command refuses or cannot do it; `reason` as in ``ebbtide.Error``."""

    def __init__(self, message: str, reason: str = "invalid_argument") -> None:
        super().__init__(message)
        self.reason = reason


def _discard(stream: IO[str]) -> None:
    """Discards all later and all buffered output."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(null, stream.fileno())
        os.close(null)


def say(text: str) -> None:
    """Writes to stdout. A reader that has gone away is not a failure; a full disk is."""
    try:
        typer.echo(text)
    except BrokenPipeError:
        _discard(sys.stdout)
    except OSError:
        _discard(sys.stdout)
        raise


def complain(text: str) -> None:
    """Writes to stderr, if possible: the exit code shows the failure too."""
    try:
        typer.secho(text, fg=typer.colors.RED, err=True)
    except OSError:
        _discard(sys.stderr)


def show_json(document: dict[str, Any]) -> None:
    """The only thing on stdout."""
    say(json.dumps(document, indent=1))


def _end(message: str, reason: str, code: int, as_json: bool) -> typer.Exit:
    sys.stdout.flush()
    complain(f"ebbtide: {names.line(message)}")
    if as_json:
        with contextlib.suppress(OSError):
            show_json({"error": {"reason": reason, "message": message}})
    return typer.Exit(code)


class Command(TyperCommand):
    """A command with a flag ``--json``: with it, usage errors end as all others do."""

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> Any:
        """Reads the command line."""
        options = args[: args.index("--")] if "--" in args else list(args)
        try:
            return super().make_context(info_name, args, *more, **extra)
        except _UsageError as error:
            if "--json" not in options:
                raise
            raise _end(error.format_message(), "invalid_argument", REFUSED, True) from None


@contextlib.contextmanager
def exit_codes(as_json: bool) -> Iterator[None]:
    """Around a command: refusals, failures and Ctrl-C become one line on stderr and an exit code."""
    try:
        yield
    except Refused as error:
        raise _end(str(error), error.reason, REFUSED, as_json) from None
    except ebbtide.Error as error:
        code = DAMAGED if error.reason == "damaged" else REFUSED
        raise _end(str(error), error.reason, code, as_json) from None
    except KeyboardInterrupt:
        raise _end("interrupted", "interrupted", INTERRUPTED, as_json) from None
    except OSError as error:
        raise _end(str(error), "io_error", REFUSED, as_json) from None
