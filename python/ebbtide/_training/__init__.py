"""What the helpers for frameworks have in common. Imports none of them."""
