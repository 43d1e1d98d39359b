"""The machine under a program, for what measures it: arrays on its devices, their contents, and the bare rates of copies and
of a disk.
"""
