"""What benches/gpu_snapshots measured: the part of the last chapter of docs/snapshots.md on arrays on a GPU."""

from __future__ import annotations

SHARES = ("0.1%", "1%", "5%", "10%")


def page(found: dict) -> str:
    lines = [
        "",
        f"**An array on a GPU** of {found['bytes'] / 2**30:.0f} GiB ({found['machine']}, `build/gpu/benches/gpu_snapshots`): how long "
        "a cut blocks the stream, with zones of 64 KiB, in milliseconds, medians; over what only reading the array and a bare device "
        "copy of the zones take; and a blocking copy of all to the host over it.",
        "",
        "| d | blocked | over reading and copying | all to the host, over it | fenced | over reading |",
        "|---|---|---|---|---|---|",
    ]
    for share in SHARES:
        if f"blocked_ms_{share}" not in found:
            continue
        names = (
            f"blocked_ms_{share}",
            f"blocked_over_read_and_copy_{share}",
            f"copy_of_all_to_host_over_blocked_{share}",
            f"blocked_ms_fenced_{share}",
            f"blocked_over_read_fenced_{share}",
        )
        cells = [f"{found[name][0]:.3g}" for name in names]
        lines.append(f"| {share} | {' | '.join(cells)} |")
    lines += [
        "",
        f"Reading goes at {found['bare_read_GBps']:.0f} GB/s, a device copy at {found['bare_device_copy_GBps']:.0f} GB/s, and the link "
        f"to the host at {found['bare_link_GBps']:.0f} GB/s; packed zones of a fenced cut with d = 5% come to the host at "
        f"{found['packed_to_host_over_link_fenced_5%'][0]:.0%} of that.",
        "",
        f"Restored from the host cache into the array, all of it comes at {found['restore_of_all_over_link'][0]:.0%} of the link's "
        f"{found['bare_link_up_GBps']:.0f} GB/s; with `have=`, where 5% of the zones differ, these come at "
        f"{found['restore_of_differing_over_link_5%'][0]:.0%}, because pieces come whole, and both maps are read. Every zone is "
        "checked on the GPU before it is placed.",
        "",
        "What is missing to 1 is the host's work between the end of the digests and the return of `snapshot`, and, without `fenced`, "
        "some enqueues for each piece; reading all of the array alone would leave a ratio of "
        f"{found['copy_of_all_to_host_s'] * found['bare_read_GBps'] * 1e9 / found['bytes']:.0f} to the copy of all to the host.",
    ]
    return "\n".join(lines) + "\n"
