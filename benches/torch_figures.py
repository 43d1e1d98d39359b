"""docs/torch.md's chapter of measured figures, from benches/results."""

from __future__ import annotations

import statistics
import textwrap
from typing import Any

WAYS = {"ours": "`Manager.save`", "dcp_async": "`torch.distributed.checkpoint`, `async_save`", "torch_save": "`torch.save`, synced and renamed"}  # fmt: skip
TITLES = {
    "ebbtide.torch.Manager": "`Manager.save`",
    "torch.distributed.checkpoint, async_save": "`torch.distributed.checkpoint`, `async_save`",
    "torch.save + fsync + rename": "`torch.save`, synced and renamed",
    "torch.distributed.checkpoint": "`torch.distributed.checkpoint`, `save`",
    "Orbax, async": "Orbax, async, of NumPy's arrays",
}


def page(
    on_gpu: dict[str, Any],
    gpt: dict[str, Any],
    ranks: dict[str, Any],
    on_processors: dict[str, Any],
    warm: dict[str, Any],
    in_any_order: dict[str, Any],
) -> str:
    return "\n".join(
        [
            *_gpu(on_gpu),
            *_strided(in_any_order),
            *_gpt(gpt),
            *_sharded(ranks),
            *_processors(on_processors),
            *_warm(warm),
        ]
    )


def _text(*words: str) -> list[str]:
    return [textwrap.fill(" ".join(words), 120, break_on_hyphens=False), ""]


def _spread(values: list[float], scale: float = 1.0) -> str:
    median, low, high = (scale * value for value in (statistics.median(values), min(values), max(values)))
    several = f" ({low:.3g} to {high:.3g})" if len(values) > 1 else ""
    return f"{median:.3g}{several}"


def _gpu(measured: dict[str, Any]) -> list[str]:
    state, act, ratios = measured["state"], measured["activations"], measured["ratios"]
    machine = measured["machine"]
    rows = [
        f"| {title} | {_spread(state[way]['blocked_s'])} | {_spread(state[way]['durable_s'])} |"
        for way, title in WAYS.items()
    ]
    steps = {"all in GPU memory": "in_memory_s", "`offload`": "offload_s", "`save_on_cpu(pin_memory=True)`": "save_on_cpu_s"}  # fmt: skip
    return [
        *_text(
            f"**On a GPU** ({machine['gpu']}, torch {machine['torch'].split('+')[0]}, one run of `benches/torch_gpu.py`;",
            "`benches/results/torch_gpu.json`): medians, and the fastest and the slowest where there are several.",
        ),
        f"A save of {state['bytes'] / 2**30:.0f} GiB; a bare copy of the tensors within the GPU takes"
        f" {1e3 * statistics.median(state['bare_copy_s']):.1f} ms:",
        "",
        "| | the program is blocked, s | until durable, s |",
        "|---|---|---|",
        *rows,
        "",
        *_text(
            f"A step of a model with {act['activation_bytes'] / 2**30:.0f} GiB of activations, of which the store's device",
            f"cache takes half. At this link's rate what has no room could be away and back in no less than {1e3 * act['bound_s']:.0f} ms.",
        ),
        "| | a step, ms |",
        "|---|---|",
        *(f"| {title} | {_spread(act[key], 1e3)} |" for title, key in steps.items()),
        "",
        *_text(
            f"So a step runs at {ratios['speed with offload over in memory']:.0%} of the speed without `offload`. In the forward",
            "pass the link carries half of the activations away, for which it needs longer than the pass; the backward pass is as",
            "fast as without. torchtune's `OffloadActivations` is not in the table: torchtune 0.6.1, its newest release, cannot be",
            "imported with any torchao that is made for this torch.",
        ),
        *(_saving_steps(measured["saving_steps"]) if "saving_steps" in measured else []),
    ]


def _strided(measured: dict[str, Any]) -> list[str]:
    rows = []
    for name, times in measured["strided"].items():
        over = [ours / theirs for ours, theirs in zip(times["ours_s"], times["contiguous_s"])]
        holds = "holds" if statistics.median(over) <= 0.7 else "**missed**"
        rows.append(f"| {name} | {_spread(times['ours_s'], 1e3)} | {_spread(over)} | {holds} |")
    (size,) = {times["bytes"][0] for times in measured["strided"].values()}
    return [
        "",
        *_text(
            f"A checkpoint of a tensor of {size / 2**20:.0f} MiB that is not in C order, until the stream has ended it, and over that of",
            "`tensor.contiguous()`, taken in turn (`benches/torch_gpu.py --only strided`, `benches/results/torch_strided.json`). The bar is 0.7.",
            "A tensor with gaps is packed straight into the device cache; one without is copied byte for byte:",
        ),
        "| tensor | ms | over a contiguous copy followed by ours | |",
        "|---|---|---|---|",
        *rows,
    ]


GPT_TITLES = {
    "memory": "all in GPU memory",
    "nothing": "hooks that do nothing",
    **dict.fromkeys(("large", "large_stored", "middle", "middle_stored", "small", "small_stored"), "`offload`"),
    "save_on_cpu": "`save_on_cpu(pin_memory=True)`",
    "trl": "TRL's `OffloadActivations`",
}


def _titled(name: str, way: dict[str, Any]) -> str:
    stays, budget = way["memory_bytes"] / 2**30, way["budget_bytes"] / 2**30
    cache = f", device cache of {budget - stays:g} GiB" if budget else ""
    cache += f" and {stays:g} GiB of PyTorch's memory" if stays else ""
    return GPT_TITLES[name] + cache


def _gpt(measured: dict[str, Any]) -> list[str]:
    machine, batches = measured["machine"], measured["batches"].values()
    rows = []
    for batch in batches:
        for name in GPT_TITLES:
            way = batch["ways"].get(name)
            if way is None:
                continue
            bound = way.get("bound_s")
            over = f"{1e3 * bound:.0f} | {statistics.median(way['s']) / bound:.2f}" if bound else " | "
            rows.append(
                f"| {batch['shape']['batch']} | {_titled(name, way)} | {_spread(way['s'], 1e3)} | {over} | "
                f"{1e3 * statistics.median(way['host_s']):.0f} | {way['peak_bytes'] / 2**30:.1f} |"
            )
    first, *_, last = batches
    ways = {name: statistics.median(way["s"]) for name, way in last["ways"].items()}
    host = statistics.median(last["ways"]["memory"]["host_s"])
    return [
        *_text(
            "A step of a GPT of 24 blocks (width 1024, 16 heads, 1024 tokens, bfloat16 autocast, fused AdamW; one run of `benches/gpt.py` on",
            f"an {machine['gpu']}, torch {machine['torch'].split('+')[0]}; `benches/results/gpt.json`): autograd saves {first['saved']['tensors']} tensors a step, of",
            f"which {first['saved']['stored']} are large, {first['saved']['bytes'] / 2**30:.2g} GiB with batch {first['shape']['batch']}. *Bound*: the longer of the forward pass and what the link",
            "needs for what has no room in the budget, and the same for the backward pass and the optimizer. *Host*: when the program",
            "would have gone on if it did not wait for the GPU. The peak is PyTorch's; the device cache comes on top.",
        ),
        "| batch | | a step, ms | bound, ms | over it | host, ms | peak, GiB |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        *_text(
            "Where the link is the limit (batch 8, budgets of 4 and 1 GiB), it is busy in both directions all the time, but for what",
            "nothing hides: the optimizer's step. **Where all fits, leave it in PyTorch's memory.** With batch",
            f"{last['shape']['batch']} the host is the limit even without `offload`: it returns after {1e3 * host:.0f} of {1e3 * ways['memory']:.0f} ms. Beyond hooks that do nothing",
            f"`offload` costs the host {last['ways']['large']['us_a_tensor']:.0f} us for each tensor that is saved if all of it stays, and {last['ways']['large_stored']['us_a_tensor']:.0f} us if what is large is",
            "stored: so what fits costs least there if it stays, and what does not fit is bound by the host. A host's speed changes by",
            "half within seconds, so the ways are measured by turns, and the least and the most are far apart.",
        ),
    ]


def _sharded(measured: dict[str, Any]) -> list[str]:
    ranks = measured["ranks"]
    rows, over = [], {}
    for batch, first in ranks[0].items():
        for name, way in first["ways"].items():
            each = [rank[batch]["ways"][name] for rank in ranks]
            steps = [step for one in each for step in one["s"]]
            cells = " | "
            if "bound_s" in way:
                bound = max(one["bound_s"] for one in each)
                over[int(batch), name] = statistics.median(steps) / bound
                cells = f"{1e3 * bound:.0f} | {over[int(batch), name]:.2f}"
            rows.append(f"| {batch} | {_titled(name, way)} | {_spread(steps, 1e3)} | {cells} |")
    return [
        *_text(
            f"The same model, sharded by {len(ranks)} GPUs (FSDP2's `fully_shard`; one run of `benches/gpt.py --ranks {len(ranks)}`,",
            "`benches/results/gpt_ranks.json`). A rank has a batch, a store and a budget of its own. The steps are those of all ranks, the",
            "bound is that of the slower one:",
        ),
        "| batch | | a step, ms | bound, ms | over it |",
        "|---|---|---|---|---|",
        *rows,
        "",
        *_text(
            "Here the host and the collectives set the pace, not the GPU: a step in GPU memory takes two or three times as long as",
            f"on one GPU. The bound knows nothing of either, so with 4 GiB a step is {over[8, 'middle']:.2f} of it. Why it is more than with one GPU is not known.",
        ),
    ]


def _saving_steps(measured: dict[str, Any]) -> list[str]:
    titles = {"no save": "plain_s", '`stage="now"`': "now_s", '`stage="lazy"`': "lazy_s"}
    return [
        f"A training step that begins with a save of {measured['state_bytes'] / 2**30:.1f} GiB of parameters and AdamW's state:",
        "",
        "| | the step, ms |",
        "|---|---|",
        *(f"| {title} | {_spread(measured[key], 1e3)} |" for title, key in titles.items()),
        "",
    ]


def _processors(measured: dict[str, Any]) -> list[str]:
    machine = measured["machine"]
    found = {row["figure"]: row["values"] for row in measured["rows"]}
    return [
        *_text(
            f"**On processors**, a save of 1 GB: one run of `benches/state.py` on {machine['cpus']} cores (load",
            f"{machine['load_before']:.1f} before, {machine['load_after']:.1f} after; `benches/results/torch_state.json`).",
        ),
        "| | the program is blocked, s | until durable, s |",
        "|---|---|---|",
        *(
            f"| {title} | {_spread(found[f'time blocked: {key}'])} | {_spread(found[f'time until durable: {key}'])} |"
            for key, title in TITLES.items()
        ),
        "",
    ]


def _warm(document: dict[str, Any]) -> list[str]:
    machine = document["machine"]
    found = {row["figure"]: row for row in document["rows"]}
    size = int(document["command"][document["command"].index("--bytes") + 1])
    over = {name: _spread(found[f"{name}: first over second"]["values"]) for name in ("not warm", "warm")}
    return _text(
        "The first save, which is not counted, also pays for the cache's new memory. In one run of `benches/warm.py`, with a",
        f"state of {size >> 20} MiB on {machine['cpus']} processors (load {machine['load_before']:.1f} to {machine['load_after']:.1f}),",
        f"it took {over['not warm']} times as long as the second, and {over['warm']} times with `warm=True`, whose constructor took",
        f"{1e3 * found['warm: constructor']['median']:.0f} ms instead of {1e3 * found['not warm: constructor']['median']:.0f} for",
        "caches of three states.",
    )
