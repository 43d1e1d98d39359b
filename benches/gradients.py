#!/usr/bin/env python3
"""Gradients through a store, each beside what its framework offers, in turns; results must agree.

On processors; JAX on a GPU, if it finds one.

jax: a step of two stencils with a sine, of which `lax.scan` keeps the residuals of all steps in memory. Beside it `adjoint`, and
`scan` with `jax.checkpoint` around the step (it keeps states, and computes steps anew as `adjoint` does) and around segments.
deepwave: the gradient of one shot with `storage_mode="disk"`, whose files are dropped from the page cache between the
passes (which is not timed), and with `offload` around checkpointed segments of time, which computes the shot once more.
Beside them the image of the same shot by `Wavefields` and `CrossCorrelation`: as many wavefields go to the disk and come
back, past the page cache. The caches of the store have room for a tenth of them.
devito: the gradient of one shot by revolve with as many slots in pyrevolve's memory as in a store.

  pip install -r tests/frameworks.txt
  benches/gradients.py --dir /mnt/disk               # writes benches/results/gradients.json
  benches/gradients.py --dir /mnt/disk --only jax --json benches/results/gradients_gpu.json   # with JAX on a GPU
  benches/gradients.py --dir /mnt/disk --only jax --jax-elements 9437184 --jax-work 1 --json benches/results/gradients_large.json
  MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=8589934592 benches/gradients.py --dir /mnt/disk --only jax \
    --jax-elements 9437184 --jax-work 1 --json benches/results/gradients_large_malloc.json
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ebbtide
import harness
import numpy as np

Times = dict[str, list[float]]
JUDGED = (0.020, 16 * harness.MIB)  # s and bytes of a step, from which on the bar holds


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    made = work()
    return time.perf_counter() - start, made


def turns(ways: dict[str, Callable[[], tuple[float, Any]]], repeats: int, agree: Callable[[Any, Any], bool]) -> Times:
    """Seconds of each, without the first turn, which compiles."""
    found: Times = {name: [] for name in ways}
    for repeat in range(repeats + 1):
        expected = None
        for name, way in ways.items():
            seconds, made = way()
            expected = made if expected is None else expected
            if not agree(made, expected):
                raise RuntimeError(f"{name}: another gradient than that of {next(iter(ways))}")
            if repeat:
                found[name].append(seconds)
            print(f"{name:24} {seconds:8.3f} s{'' if repeat else ' (not counted)'}", flush=True)
    return found


# --- JAX -----------------------------------------------------------------------------------------------------------


def in_jax(directory: str, elements: int, steps: int, work: int, repeats: int) -> dict[str, Any]:
    import ebbtide.jax
    import jax
    import jax.numpy as jnp

    def step(field: Any, i: Any, speed: Any) -> Any:
        for _ in range(work):
            field += speed * (jnp.roll(field, 1) - 2 * field + jnp.roll(field, -1)) + 0.01 * jnp.sin(field)
        return field

    field = jax.block_until_ready(jnp.sin(jnp.linspace(0.0, 50.0, elements)))
    size = field.nbytes

    def over(body: Callable[[Any, Any, Any], Any]) -> Callable[[Any], Any]:
        def last(speed: Any) -> Any:
            return jax.lax.scan(lambda now, i: (body(now, i, speed), None), field, jnp.arange(steps))[0]

        return last

    def in_segments(speed: Any) -> Any:
        length = round(steps**0.5)

        @jax.checkpoint
        def segment(now: Any, first: Any) -> Any:
            return jax.lax.scan(lambda x, k: (step(x, first + k, speed), None), now, jnp.arange(length))[0]

        return jax.lax.scan(lambda now, first: (segment(now, first), None), field, jnp.arange(0, steps, length))[0]

    with ebbtide.open(directory, device="cpu", memory=16 * size, disk=(steps + 8) * size) as store:
        runs = {
            "scan": over(step),
            "adjoint": lambda speed, run=ebbtide.jax.adjoint(store, steps=steps)(step): run(field, speed),
            "checkpoint of a step": over(jax.checkpoint(step)),
            "checkpoint of segments": in_segments,
        }
        compiled, temporary = {}, {}
        for name, run in runs.items():
            gradient = jax.jit(jax.value_and_grad(lambda speed, run=run: (run(speed) ** 2).mean()))
            compiled[name] = gradient.lower(0.1).compile()
            temporary[name] = compiled[name].memory_analysis().temp_size_in_bytes
        advance = jax.jit(step)
        now = jax.block_until_ready(advance(field, 0, 0.1))
        a_step = min(timed(lambda: jax.block_until_ready(advance(now, 0, 0.1)))[0] for _ in range(5))
        ways = {
            name: lambda call=call: timed(lambda: [float(x) for x in jax.block_until_ready(call(0.1))])
            for name, call in compiled.items()
        }
        times = turns(ways, repeats, lambda a, b: bool(np.allclose(a, b, rtol=1e-3)))
    return {
        "device": jax.devices()[0].device_kind,
        "state_bytes": size,
        "steps": steps,
        "stencils": work,
        "step_s": a_step,
        "temporary_bytes": temporary,
        "seconds": times,
    }


# --- deepwave ------------------------------------------------------------------------------------------------------

STATE = ("wavefield_0", "wavefield_m1", "psiy_m1", "psix_m1", "zetay_m1", "zetax_m1")


def forget_pages(directory: Path) -> None:
    """Of its files, once they are written."""
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def in_deepwave(directory: str, width: int, steps: int, segments: int, repeats: int) -> dict[str, Any]:
    import deepwave
    import ebbtide.torch
    import torch
    from ebbtide.seismic import CrossCorrelation, Wavefields
    from torch.utils.checkpoint import checkpoint

    torch.set_flush_denormal(True)  # of which the first arrivals of an adjoint wavefield are full
    dt, padded = 0.001, width + 40
    size = 4 * padded**2 * steps
    scratch = Path(directory) / "deepwave"
    model = torch.full((width, width), 1500.0)
    model[width // 2 :] = 2000.0
    wavelet = deepwave.wavelets.ricker(20, steps, dt, 0.06).reshape(1, 1, -1)
    receivers = torch.stack([torch.full((width,), 2), torch.arange(width)], -1).unsqueeze(0)

    def receive(v: Any, begin: int, length: int, **more: Any) -> Any:
        return deepwave.scalar(
            v,
            5.0,
            dt,
            source_amplitudes=wavelet[..., begin : begin + length],
            source_locations=torch.tensor([[[2, width // 2]]]),
            receiver_locations=receivers,
            pml_freq=20,
            max_vel=2000.0,
            **more,
        )

    def gradient(forward: Callable[[Any], Any]) -> tuple[float, Any]:
        v = model.clone().requires_grad_()
        before, misfit = timed(lambda: forward(v))
        forget_pages(scratch)
        after, _ = timed(misfit.backward)
        return before + after, v.grad

    def whole(**options: Any) -> Callable[[Any], Any]:
        return lambda v: receive(v, 0, steps, **options)[-1].square().sum()

    def segment(v: Any, begin: int, *state: Any) -> Any:
        given = {name: field for name, field in zip(STATE, state) if field is not None}
        *last, seen = receive(v, begin, steps // segments, **given)
        return (*last, seen.square().sum())

    def in_segments(v: Any) -> Any:
        state: list[Any] = [None] * len(STATE)
        total: Any = 0.0
        with keep:
            for begin in range(0, steps, steps // segments):
                *state, misfit = checkpoint(segment, v, begin, *state, use_reentrant=True)
                total = total + misfit
        return total

    def image() -> tuple[float, Any]:
        made = CrossCorrelation(wavefields)
        seconds, _ = gradient(whole(storage_mode="none", forward_callback=wavefields, backward_callback=made))
        return seconds, None

    def agree(a: Any, b: Any) -> bool:
        return a is None or bool(torch.allclose(a, b, rtol=1e-4, atol=1e-5 * float(b.abs().max())))

    scratch.mkdir()
    room = size // 20
    with ebbtide.open(directory, device="cpu", device_cache=room, host_cache=room, disk=2 * size) as store:
        keep, wavefields = ebbtide.torch.offload(store), Wavefields(store)
        ways = {
            "in memory": lambda: gradient(whole()),
            "disk": lambda: gradient(whole(storage_mode="disk", storage_path=str(scratch))),
            "offload": lambda: gradient(in_segments),
            "image": image,
        }
        times = turns(ways, repeats, agree)
    return {"stored_bytes": size, "steps": steps, "segments": segments, "width": width, "seconds": times}


# --- Devito --------------------------------------------------------------------------------------------------------


def in_devito(directory: str, width: int, steps: int, slots: int, repeats: int) -> dict[str, Any]:
    import devito
    import pyrevolve
    from devito.checkpointing import CheckpointOperator, DevitoCheckpoint
    from ebbtide.seismic import Storage

    devito.configuration["log-level"] = "ERROR"
    grid = devito.Grid(shape=(width, width))
    u = devito.TimeFunction(name="u", grid=grid, time_order=2, space_order=4)
    v = devito.TimeFunction(name="v", grid=grid, time_order=2, space_order=4)
    image = devito.Function(name="image", grid=grid)
    dt = 0.2 * min(grid.spacing)
    forward = devito.Operator([devito.Eq(u.forward, 2 * u - u.backward + dt**2 * u.laplace)], name="Forward")
    back = [devito.Eq(v.backward, 2 * v - v.forward + dt**2 * v.laplace), devito.Eq(image, image + u * v)]
    reverse = devito.Operator(back, name="Reverse")

    def gradient(storage: Any) -> tuple[float, Any]:
        for function in (u, v, image):
            function.data_with_halo[:] = 0
        u.data[:, width // 2, width // 2] = 1.0
        v.data[:, width // 3, width // 2] = 1.0
        revolver = pyrevolve.MemoryRevolver(
            DevitoCheckpoint([u]),
            CheckpointOperator(forward, u=u, time_m=1, time_M=steps),
            CheckpointOperator(reverse, u=u, v=v, image=image, time_m=1, time_M=steps),
            slots,
            steps,
        )
        if storage is not None:
            revolver.resetStorageList()
            revolver.addStorage(storage)
        seconds, _ = timed(lambda: (revolver.apply_forward(), revolver.apply_reverse()))
        return seconds, np.array(image.data)

    state = u.data_with_halo.nbytes
    with ebbtide.open(
        directory, device="cpu", device_cache=(slots + 2) * state, host_cache=0, disk=4 * slots * state
    ) as store:
        ways = {"pyrevolve's memory": lambda: gradient(None), "Storage": lambda: gradient(Storage(store, slots))}
        times = turns(ways, repeats, lambda a, b: bool((a == b).all()))
    return {"state_bytes": state, "steps": steps, "slots": slots, "seconds": times}


def rows(found: dict[str, Any]) -> list[harness.Row]:
    out = []
    for name, measured in found.items():
        out += [harness.told(f"{name}: {way}", times, " s") for way, times in measured["seconds"].items()]
    if "jax" in found:
        jax, times = found["jax"], found["jax"]["seconds"]
        ratios = harness.over(times["adjoint"], times["scan"])
        row = harness.Row("jax: adjoint over scan in memory", "at most 1.1", ratios, harness.at_most(1.1), " times")
        out.append(harness.judged_if(jax["step_s"] >= JUDGED[0] and jax["state_bytes"] >= JUDGED[1], row))
        for other in ("checkpoint of a step", "checkpoint of segments"):
            out.append(
                harness.told(f"jax: {other} over adjoint", harness.over(times[other], times["adjoint"]), " times")
            )
    if "deepwave" in found:
        times = found["deepwave"]["seconds"]
        for way in ("offload", "image"):
            ratios = harness.over(times["disk"], times[way])
            out.append(harness.Row(f"deepwave: disk over {way}", "at least 1", ratios, harness.at_least(1), " times"))
    if "devito" in found:
        times = found["devito"]["seconds"]
        ratios = harness.over(times["Storage"], times["pyrevolve's memory"])
        out.append(harness.told("devito: Storage over pyrevolve's memory", ratios, " times"))
    return out


def main() -> None:
    parser = harness.options(__doc__ or "", repeats=5)
    parser.set_defaults(json=harness.RESULTS / "gradients.json")
    parser.add_argument("--only", default="jax,deepwave,devito", help="with commas between; default: %(default)s")
    parser.add_argument(
        "--jax-elements",
        type=int,
        default=24 << 18,
        help="float32 of a state; glibc maps more than 32 MiB anew each time",
    )
    parser.add_argument("--jax-work", type=int, default=2, help="stencils in a step")
    parser.add_argument("--jax-steps", type=int, default=36)
    parser.add_argument("--deepwave-width", type=int, default=500)
    parser.add_argument("--deepwave-steps", type=int, default=800)
    parser.add_argument("--devito-width", type=int, default=800)
    parser.add_argument("--devito-steps", type=int, default=200)
    given = parser.parse_args()
    machine = harness.machine(given.dir)
    machine["malloc"] = {name: value for name, value in os.environ.items() if name.startswith("MALLOC_")}
    work = {
        "jax": lambda where: in_jax(where, given.jax_elements, given.jax_steps, given.jax_work, given.repeats),
        "deepwave": lambda where: in_deepwave(where, given.deepwave_width, given.deepwave_steps, 10, given.repeats),
        "devito": lambda where: in_devito(where, given.devito_width, given.devito_steps, 20, given.repeats),
    }
    found = {}
    for name in given.only.split(","):
        with tempfile.TemporaryDirectory(prefix="gradients-", dir=given.dir) as directory:
            found[name] = work[name](directory)
    machine["load_after"] = os.getloadavg()[0]
    table = rows(found)
    print(harness.table(table))
    medians = {
        name: {way: statistics.median(times) for way, times in measured["seconds"].items()}
        for name, measured in found.items()
    }
    document = {
        "figure": "gradients",
        "command": [
            Path(__file__).name,
            *(
                f"--{name.replace('_', '-')}={value}"
                for name, value in vars(given).items()
                if name not in ("json", "dir")
            ),
        ],
        "machine": machine,
        "rows": [row.as_json() for row in table],
        "measured": found | {"medians": medians},
    }
    given.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
