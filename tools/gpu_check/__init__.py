"""The stages of tools/gpu-check."""
