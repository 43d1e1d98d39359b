"""How snapshots find out what was written here."""

from __future__ import annotations

from typing import Any

from .finding import Finding, note, ok

_INSTEAD = {
    "faults": "the first write to a zone is seen as it happens, so a snapshot does not block",
    "scan": "the kernel notes what was written; a snapshot blocks until it is copied",
    "digest": "a snapshot reads all of the memory, and blocks until it is copied",
}


def advice_for(reason: str) -> str:
    """What lets userfaultfd work, by why it does not."""
    if "unprivileged_userfaultfd" in reason:
        return "sudo sysctl vm.unprivileged_userfaultfd=1, or let this user open /dev/userfaultfd"
    if "EPERM" in reason or "EACCES" in reason:
        return (
            "let the container call userfaultfd (docker run --security-opt seccomp=PROFILE that allows it), and"
            " sudo sysctl vm.unprivileged_userfaultfd=1"
        )
    if "6.4" in reason or "6.7" in reason or "ENOSYS" in reason:
        return "use Linux 6.7 or later, with CONFIG_USERFAULTFD"
    return "use a kernel and a container that allow userfaultfd"


def watch(found: dict[str, Any]) -> Finding:
    """One way to notice writes."""
    text = "works" if found["usable"] else f"cannot be used: {found['note']}"
    if found["name"] == "userfaultfd asynchronous":
        text += " (with PAGEMAP_SCAN)" if found["usable"] else ""
    values = {key: found[key] for key in ("usable", "user_faults_only", "note")}
    if found["name"] == "mprotect" and found["usable"]:  # limited everywhere, and used where there is nothing else
        return ok(found["name"], f"{text}; {found['note']}", **values)
    if found["user_faults_only"]:
        return note(
            found["name"], f"for faults of user mode only; {found['note']}", advice_for(found["note"]), **values
        )
    return (
        ok(found["name"], text, **values)
        if found["usable"]
        else note(found["name"], text, advice_for(found["note"]), **values)
    )


def findings(tracking: dict[str, Any]) -> list[Finding]:
    """Each way, and what `track="auto"` makes of them."""
    track = tracking["auto"]
    return [*map(watch, tracking["watches"]), ok('track="auto"', f'is "{track}": {_INSTEAD[track]}', track=track)]
