"""Wheels and the source distribution: `make wheels` makes them, `make try-wheels` installs them where nothing else is."""
