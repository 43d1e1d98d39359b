"""How a command ends: its exit code, and what is said of a refusal."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import typer

import ebbtide

from . import names

OK, DAMAGED, REFUSED, INTERRUPTED = 0, 1, 2, 130


class Refused(Exception):
    """What the command will not do, or cannot; `reason` as in ``ebbtide.Error``."""

    def __init__(self, message: str, reason: str = "invalid_argument") -> None:
        super().__init__(message)
        self.reason = reason


def show_json(document: dict[str, Any]) -> None:
    """The only thing on stdout."""
    typer.echo(json.dumps(document, indent=1))


def _end(message: str, reason: str, code: int, as_json: bool) -> typer.Exit:
    sys.stdout.flush()
    typer.secho(f"ebbtide: {names.line(message)}", fg=typer.colors.RED, err=True)
    if as_json:
        show_json({"error": {"reason": reason, "message": message}})
    return typer.Exit(code)


@contextlib.contextmanager
def told(as_json: bool) -> Iterator[None]:
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
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _end(str(error), "io_error", REFUSED, as_json) from None
