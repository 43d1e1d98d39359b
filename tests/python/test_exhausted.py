"""Every kind of wait ends, and says by name what it waited for in vain, whatever the store has run out of."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from child import ended
from kept_support import program

# How a store is opened that is to run out of something, what takes all of it, and what gives it back.
GROW = "resource.setrlimit(resource.RLIMIT_FSIZE, ({}, resource.RLIM_INFINITY))"
DROPS = "[store.drop(version) for version in store.versions()[:-2]]"
POOL = {"durability": "node", "node_pool": "8MiB", "disk": "6MiB", "host_cache": None}
RESOURCES: dict[str, tuple[dict[str, object], str, str]] = {
    "quota": ({"disk": "2MiB"}, "", DROPS),
    "disk": ({}, GROW.format(4096), GROW.format("resource.RLIM_INFINITY")),
    "a small file system": ({}, "fill(directory / 'filler')", "(directory / 'filler').unlink()"),
    "descriptors": ({}, "take_descriptors()", "give_descriptors_back()"),
    "pool": (POOL, "", DROPS),
    "pool, agent inside": (POOL | {"tuning": {"node_agent": False}}, "", DROPS),
    "shared directory": ({"shared": "shared", "durability": None}, GROW.format(4096), GROW.format("resource.RLIM_INFINITY")),
}  # fmt: skip

BODY = """
import contextlib, json, warnings
options, taken, way = {options!r}, [], {way!r}
warnings.simplefilter("ignore")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
if "shared" in options:
    options["shared"] = directory / "beside"
outcomes, size = {{}}, 100_000

def fill(path):
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))

def take_descriptors():
    here = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (here, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.dup(0))

def give_descriptors_back():
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    while taken:
        os.close(taken.pop())

def tried(name, call):
    print("begun:", name, file=sys.stderr, flush=True)
    try:
        result = call()
        outcomes[name] = "ok"
        return result
    except ebbtide.Error as error:
        assert str(error), name
        outcomes[name] = f"{{type(error).__name__}}: {{error}}"

if way == "torch":
    import torch
    from ebbtide.torch import Manager
    x = torch.ones(50_000)
elif way == "jax":
    import jax.numpy
    from ebbtide.jax import Manager
    x = {{"x": jax.numpy.ones(50_000)}}
    jax.device_put(np.ones(1), x["x"].sharding)  # JAX imports a module of its own at its first use
store = ebbtide.open(directory / "kept", **options)
level = store.durability
store.checkpoint(0, content(0, size))
store.wait(level, 0)
store.history("waited").checkpoint(0, np.zeros(8))
if way in ("torch", "jax"):
    manager = Manager(store, name="m")
    step = lambda number: manager.step(number, x=x) if way == "torch" else manager.step(number, x)
    resume = lambda: manager.resume(x=x) if way == "torch" else manager.resume(x)
{exhaust}
futures = {{}}
for version in range(1, {versions}):
    try:
        futures[version] = store.checkpoint(version, content(version, size), timeout=0.2)
    except ebbtide.Error:
        break
last = max(futures, default=0)
if way == "calls":
    for one in dict.fromkeys(["device", "host", "local", "process", "node", "storage", "shared"]):
        tried(f"wait({{one}})", lambda: store.wait(one))
        tried(f"wait({{one}}, version)", lambda: store.wait(one, last))
        if last:
            tried(f"Future.wait({{one}})", lambda: futures[last].wait(one))
            tried(f"Future.done({{one}})", lambda: futures[last].done(one))
    tried("History.wait", lambda: store.history("waited").wait(level))
    tried("latest", store.latest)
elif way == "snapshot":
    store.protect(np.ones(300_000, "u1"), track="declared")
    if future := tried("snapshot", lambda: store.snapshot(1000)):
        tried("snapshot.wait(copied)", lambda: future.wait("copied"))
        tried("snapshot.wait", lambda: future.wait(level))
        tried("restore", lambda: store.restore(1000, keep=True))
    tried("unprotect", store.unprotect)
elif way == "file":
    if file := tried("create_file", lambda: store.create_file("f", 1, timeout=0.2)):
        tried("write", lambda: [file.write(bytes([n]) * 70_000) for n in range(40)])
        tried("file.close", file.close)
        tried("file.wait", lambda: file.wait(level))
    tried("wait", lambda: store.wait(level))
elif way != "close":
    saved = [tried(f"step {{number}}", lambda: step(number)) for number in range(1, 5)]
    for number, one in enumerate(saved, 1):
        tried(f"step {{number}}: wait", lambda: one and one.wait(level))
    tried("manager.wait", manager.wait)
    tried("manager.resume", resume)
    tried("manager.close", manager.close)

if way == "close":
    tried("close", store.close)
else:
    {release}
    store.drop(1000)
    store.wait(level)
    for version in store.versions():
        assert same(store.restore(version, keep=True), version, size), version
    tried("close", store.close)
print(json.dumps(outcomes))
"""


@pytest.fixture
def job() -> Iterator[str]:
    """A job of its own; none of its pools is left at the end."""
    name = f"test-{uuid.uuid4().hex}"
    yield name
    for pool in Path("/dev/shm").glob(f"*{name}*"):
        pool.unlink()


WAYS = ["calls", "snapshot", "file", "close", "torch", "jax"]
REFUSED_BY_NAME = [("shared directory", "snapshot"), ("shared directory", "file")]


@pytest.mark.parametrize(
    ("resource", "way"), [(one, way) for one in RESOURCES for way in WAYS if (one, way) not in REFUSED_BY_NAME]
)
def test_every_wait_ends(disk: Path, job: str, resource: str, way: str) -> None:
    more, exhaust, release = RESOURCES[resource]
    if way in ("torch", "jax"):
        pytest.importorskip(way, reason=f"{way} is not installed")
    sizes = {
        "device": "cpu",
        "device_cache": "512KiB",
        "host_cache": "512KiB",
        "disk": "64MiB",
        "durability": "process",
    }
    options = {key: value for key, value in (sizes | more).items() if value is not None}
    versions = 150 if release == DROPS else 6
    body = BODY.format(options=options, way=way, exhaust=exhaust, release=release, versions=versions)
    command = program(disk, "process", body)
    if resource == "a small file system":
        inside = ["sh", "-c", 'mount -t tmpfs -o size=3m,mode=700 none "$0" && exec "$@"', str(disk)]
        command = ["unshare", "--user", "--map-root-user", "--mount", *inside, *command]
    done = ended(*command, env=os.environ | {"EBBTIDE_JOB": job})
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    refused = {name for name, text in told.items() if text.startswith(("NoSpace: ", "IOFailed: "))}
    levels = {name for name, text in told.items() if text.startswith("Unsupported: level=")}
    assert told.keys() == refused | levels | {name for name, text in told.items() if text == "ok"}, told
    assert refused or resource == "descriptors", told  # those that are open are enough
