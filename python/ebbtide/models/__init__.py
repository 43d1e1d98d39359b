"""What machines would do, before they are run: `ebbtide sim`, and `ebbtide plan` (efficiency)."""
