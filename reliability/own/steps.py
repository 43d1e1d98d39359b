"""The calls that any program makes, with what its objects do in the midst of them and after."""

from __future__ import annotations

import gc
from typing import Any

import ebbtide
from reliability import outcomes
from reliability.own import arrays, forks, hooks
from reliability.own.arrays import Bundle
from reliability.own.run import Kinds, Over, Run
from reliability.own.values import Value

GONE = (ebbtide.UnknownVersion, ebbtide.Consumed, ebbtide.Dropped)


def value(bundle: Bundle) -> Value:
    return Value(bundle.structure, tuple(bundle.keys), bundle.leaves())


def checkpoint(run: Run, hooked: bool | None = None, most: int = 1 << 14) -> None:
    name = run.pick_history()
    known = list(run.model.of(name))
    again = bool(known) and run.random.random() < 0.05
    version = run.random.choice(known) if again else run.new_version(name)
    bundle = arrays.bundle(run.random, most, run.random.random() < 0.2 if hooked is None else hooked)
    plan = hooks.planned(run, bundle, name, version)
    before = value(bundle)
    history = run.history(name)
    may: Kinds = (ebbtide.VersionExists,) if again or (name, version) in run.model.entries else ()
    tells = f"checkpoint {name[:9]!r} {version} of {shown(bundle)}"
    try:
        found, error = judged(run, tells, lambda: history.checkpoint(version, bundle.object, timeout=patience(run)),
                              plan, may + run.full())  # fmt: skip
    finally:
        for one in bundle.hooked():
            one.hook = None
    if error is None and plan and plan.unnoticed():
        run.attempt("  drop", lambda: history.drop(version), may=(ebbtide.UnknownVersion, ebbtide.Closed))
    elif error is None:
        allowed = [before] + ([value(bundle)] if plan and plan.overwrote else [])
        run.put(name, version, allowed, mixed=len(allowed) > 1)
        if run.random.random() < 0.7:
            bundle.overwrite(run.seed + 1)
        if run.random.random() < 0.3:
            del bundle
            gc.collect()
        after_checkpoint(run, name, version, found)
    elif not (plan and plan.closed) and (name, version) not in run.model.entries:
        there, _ = run.attempt("  is it there?", history.versions)
        if there is not None and version in there:
            run.breach(outcomes.SILENT_WRONG, f"{tells}: it failed, and is there")
    if plan and plan.closed:
        reopen(run, closed=True)


def judged(run: Run, tells: str, call: Any, plan: hooks.Plan | None, may: Kinds) -> tuple[Any, Any]:
    """A call whose objects do `plan` meanwhile: what was changed is an error, and the program's own comes through."""
    if plan is None:
        return run.attempt(tells, call, may=may)
    error: Any = None

    def watched() -> Any:
        nonlocal error
        try:
            return call()
        except BaseException as raised:
            error = raised
            raise

    result: Any = None
    try:
        result = watched()
    except BaseException:
        pass
    causes = plan.causes()

    def again() -> Any:
        if error is not None:
            raise error
        return result

    if plan.fired and plan.action in ("raise", "interrupt") and error is None:
        run.breach(outcomes.SILENT_WRONG, f"{tells}: what the program raised within is not raised")
    if plan.unnoticed() and error is None:
        run.breach(outcomes.SILENT_WRONG, f"{tells}: went well, though its container was changed: {plan.action}")
    return run.attempt(tells, again, may=may + causes)


def shown(bundle: Bundle) -> str:
    return f"{bundle.structure} of {', '.join(thing.kind for thing in bundle.things[:6])}"


def patience(run: Run) -> float | None:
    """A disk that is too small never has room: a call without a limit would wait for another thread's drop."""
    return 0.3 if run.views or isinstance(run.options.get("disk"), int) else None


def after_checkpoint(run: Run, name: str, version: int, future: Any) -> None:
    """What the future says, now and then."""
    draw, may = run.random.random(), run.full() + run.absent(name, version)
    if draw < 0.15:
        _, error = run.attempt("future.wait", lambda: future.wait(run.level), may=may)
        if error is None:
            run.report(name, [version])
    elif draw < 0.3:
        done, _ = run.attempt("future.done", lambda: future.done(run.level), may=may)
        if done:
            run.report(name, [version])
    elif draw < 0.36:
        word = run.random.choice(["", " local", "disk", "LOCAL", "x" * 500])
        call = run.random.choice([future.wait, future.done])
        run.attempt(f"future.{call.__name__}({word[:9]!r})", lambda: call(word), must=(ebbtide.InvalidArgument,))


def restore(run: Run, how: str = "") -> None:
    """One version: new arrays, or the program's own; at once, or in the background."""
    name = run.pick_history()
    version = run.pick_version(name)
    entry = run.model.entries.get((name, version))
    history = run.history(name)
    keep = run.random.random() < 0.5
    run.moved = False
    how = how or run.random.choice(["new", "new", "out", "async", "async out"])
    out = fitting(run, entry) if entry and "out" in how else None
    plan = hooks.planned(run, out, name, version) if out and run.random.random() < 0.8 else None
    tells = f"restore ({how}) {name[:9]!r} {version}{' into ' + shown(out) if out else ''}"
    more: dict[str, Any] = {"keep": keep} | ({"out": out.object} if out else {})
    may = run.absent(name, version) + (run.full() if run.views else ())

    def call() -> Any:
        if "async" not in how:
            return history.restore(version, **more)
        future = history.restore_async(version, **more)
        if plan:
            plan.returned()
        guards = meanwhile(run, out)
        result = future.result(timeout=20)
        if any((guard != hooks.JUNK).any() for guard in guards):
            run.breach(outcomes.SILENT_WRONG, f"{tells}: memory that is another array's by now was written to")
        return result

    found, error = judged(run, tells, call, plan, may)
    closed = bool(plan and plan.closed)
    if error is None and entry is None and not (plan and plan.action == "checkpoint it"):
        run.breach(outcomes.SILENT_WRONG, f"{tells}: it is not there, and was given")
    elif error is None and entry is not None:
        if plan and plan.unnoticed():
            entry.maybe = True
        elif out is None:
            run.compare(tells, entry, found)
        elif not (plan and plan.overwrote) and not run.moved:
            run.compare(tells, entry, value(out))
        if not keep and not run.kept:
            consumed(run, name, version)
    elif isinstance(error, KeyboardInterrupt) and entry:
        entry.maybe = True
    if closed:
        reopen(run, closed=True)


def consumed(run: Run, name: str, version: int) -> None:
    if run.hinted and (name, version) in run.model.entries:
        run.model.entries[name, version].maybe = True
    else:
        run.forget(name, version)


def meanwhile(run: Run, out: Bundle | None) -> list[Any]:
    """While a restore is under way: the container that it was given may lose all it has. Arrays that must stay as
    they are."""
    action = run.random.choice(["", "", "clear", "collect", "wait", "versions", "fork", "set"])
    run.say(f"  meanwhile: {action}") if action else None
    if action == "clear" and out and isinstance(out.object, (list, dict)):
        out.object.clear()
    elif action == "collect":
        gc.collect()
    elif action == "wait":
        run.attempt("  wait", lambda: run.store.wait("device"), may=run.full())
    elif action == "versions":
        run.attempt("  versions", run.store.versions)
    elif action == "fork" and len(run.children) < 3:
        forks.fork(run)
    elif action == "set" and out:
        run.moved, guards = hooks.set_elsewhere(out)
        return guards
    return []


def fitting(run: Run, entry: Any) -> Bundle | None:
    """Objects of the program's own that a version fits into: NumPy's, torch's or with code of their own."""
    import numpy as np

    first = entry.allowed[0]
    things = []
    for text, shape, _ in first.leaves:
        try:
            inner = np.zeros(shape, np.dtype(text))
        except (TypeError, ValueError, SyntaxError):
            return None
        kind = run.random.choice(["plain", "plain", "hooked", "torch", "bytearray"])
        if kind == "hooked" and inner.dtype.kind in "iufc" and inner.dtype.isnative:
            one = arrays.Hooked(inner)
            things.append(arrays.Thing(kind, one, lambda inner=inner: arrays.leaf_of(inner), hooked=one))
        elif kind == "torch" and arrays.module("torch") and text in ("<f4", "<f8", "<i4", "<i8", "|u1", "<f2"):
            tensor = arrays.module("torch").from_numpy(inner).clone()  # which alone has its memory
            things.append(arrays.Thing(kind, tensor, lambda tensor=tensor: arrays.leaf_of(tensor)))
        elif kind == "bytearray" and text == "|u1" and len(shape) == 1 and shape[0]:
            raw = bytearray(shape[0])
            things.append(arrays.Thing(kind, raw, lambda raw=raw: arrays.leaf_of(raw)))
        else:
            things.append(arrays.of_numpy("plain", inner))
    return arrays.bundled(first.structure, list(first.keys), things)


def wait(run: Run) -> None:
    name = run.pick_history()
    known = list(run.model.of(name))
    version = run.random.choice(known) if known and run.random.random() < 0.3 else None
    may = run.full() + (run.absent(name, version) if version is not None else ())
    level = run.level
    if run.random.random() < 0.2:
        level = run.random.choice(["ephemeral", "device"] if run.options["device_cache"] else ["ephemeral"])
    _, error = run.attempt(f"wait {level} {name[:9]!r} {version}", lambda: run.history(name).wait(level, version),
                           may=may)  # fmt: skip
    if error is None and level == run.level:
        run.report(name, known if version is None else [version])


def drop(run: Run) -> None:
    name = run.pick_history()
    version = run.pick_version(name) if run.random.random() < 0.85 else None
    may = run.absent(name, version) if version is not None else ()
    _, error = run.attempt(f"drop {name[:9]!r} {version}", lambda: run.history(name).drop(version), may=may)
    if error is None:
        run.forget(name, version)
    elif run.hurt and run.kept:
        for known, entry in run.model.of(name).items():
            entry.maybe = entry.maybe or version in (None, known)


def versions(run: Run) -> None:
    for name in {key[0] for key in run.model.entries} | {""}:
        found, error = run.attempt(f"versions {name[:9]!r}", run.history(name).versions)
        if error is None:
            check_versions(run, name, found)


def check_versions(run: Run, name: str, found: list[int]) -> None:
    entries = run.model.of(name)
    must = {one for one in run.model.retained(name) if not entries[one].maybe and not entries[one].hurt}
    if missing := must - set(found):
        run.breach(outcomes.SILENT_WRONG, f"of history {name[:9]!r} missing: {sorted(missing)[:5]}")
    if more := set(found) - set(entries):
        run.breach(outcomes.SILENT_WRONG, f"of history {name[:9]!r} there, though dropped: {sorted(more)[:5]}")


def latest(run: Run) -> None:
    if not run.kept:
        return
    name = run.pick_history()
    found, error = run.attempt(f"latest {name[:9]!r}", run.history(name).latest)
    entries = run.model.of(name)
    sure = [version for version, one in entries.items() if not one.maybe and not one.hurt]
    if error is None and (found is None or found not in entries or (sure and found < max(sure))):
        if entries or found is not None:
            if not (found is None and not sure):
                run.breach(outcomes.SILENT_WRONG, f"latest of {name[:9]!r} is {found}, not {max(sure, default=None)}")


def hint(run: Run) -> None:
    name = run.pick_history()
    known = list(run.model.of(name))
    run.random.shuffle(known)
    run.hinted = True
    run.attempt("hint", lambda: run.history(name).hint(known))


def reopen(run: Run, closed: bool = False) -> None:
    """Closes it, calls what is closed, and opens it again in the same process."""
    if not closed:
        run.close()
    dead = run.store
    call = run.random.choice([dead.versions, lambda: dead.checkpoint(10**7, b"x"), lambda: dead.restore(0),
                              lambda: dead.wait("device"), lambda: dead.reserve(10**7, 4),
                              lambda: dead.borrow(0)])  # fmt: skip
    run.attempt("a call of the closed store", call, must=(ebbtide.Closed,))
    if run.hurt:
        raise Over  # another process looks at it
    run.store, _ = run.attempt("open", run.open)
    if run.store is None:
        run.ended = "not closed"
        raise Over
    if not run.kept:
        run.model.entries.clear()
    else:
        for name in {key[0] for key in run.model.entries}:
            check_versions(run, name, run.history(name).versions())


def second_writer(run: Run) -> None:
    """Nobody else may write it, whatever children there are."""
    if run.kept and not run.hurt:
        run.attempt("open it twice", lambda: run.open().close(), must=(ebbtide.InUse,))


def settled(run: Run) -> None:
    """What a restore may now give: all of it, once."""
    for (name, version), entry in sorted(run.model.entries.items()):
        found, error = run.attempt(f"restore {name[:9]!r} {version}",
                                   lambda: run.history(name).restore(version, keep=True),
                                   may=run.absent(name, version) + run.full())  # fmt: skip
        if error is None:
            run.compare(f"restore {name[:9]!r} {version}", entry, found)
