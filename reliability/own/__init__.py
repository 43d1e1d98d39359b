"""The trial of what a program does to its own objects: see trial.py."""
