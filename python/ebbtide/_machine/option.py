"""The option `--device`."""

from __future__ import annotations

from .._options import wrong
from .device import NoDevice, select


def check_device(text: str) -> None:
    """Refuses a `--device` that is not valid or does not exist."""
    try:
        select(text)
    except NoDevice as error:
        raise wrong("--device", f"NoDevice: {error}") from None
    except ValueError as error:
        raise wrong("--device", str(error)) from None
