"""The trials of tools/reliability."""
