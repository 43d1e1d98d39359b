"""`ebbtide doctor`: what this machine has for a store, how fast it is, and what to change.

Each part gives findings: `gpus` (the build, the GPUs and their links), `peers` (which GPU reaches which other one's
memory), `disk` (the directory and its rates), `limits` (what the kernel allows), `snapshots` (how writes to memory are
found), `caches` (what a store would take); `finding` says what one is, `report` prints them.
"""
