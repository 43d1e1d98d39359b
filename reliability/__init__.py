"""The trials of reliability."""
