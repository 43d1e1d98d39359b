"""A process of node.py's: opens its rank's store in the pool, says what is there, and does what it is told."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import numpy as np

import ebbtide

POOL = 12 << 20


def worker(directory: str) -> None:
    def array(value: list[int]) -> Any:
        return np.arange(value[1], dtype=np.int64) + value[0]

    def seen(found: Any) -> list[int]:
        value = [int(found[0]), len(found)]
        return value if (found == array(value)).all() else [-1, len(found)]

    store = ebbtide.open(directory, durability="node", node_pool=POOL, device_cache="2MiB", disk="160MiB", device="cpu")
    history = store.history("h")
    written: dict[str, Any] = {}  # files

    def there() -> dict[str, list[int]]:
        found = {}
        for version in history.versions():
            found[f"h{version}"] = seen(history.restore(version, keep=True))
        for name, version, _ in store.files():
            with store.open_file(name, version) as file:
                found[f"f{version}"] = seen(np.frombuffer(file.read(), np.int64))
        return found

    def put(key: str, value: list[int]) -> None:
        if key[0] == "h":
            history.checkpoint(int(key[1:]), array(value), timeout=20)
            return
        with store.create_file("f", int(key[1:])) as file:
            for part in np.array_split(array(value), 3):
                file.write(part.tobytes())
        written[key] = file

    def drop(key: str) -> None:
        try:
            history.drop(int(key[1:])) if key[0] == "h" else store.drop_file("f", int(key[1:]))
        except ebbtide.UnknownVersion:  # nothing of it was written
            pass

    def wait(key: str, level: str) -> None:
        history.wait(level, int(key[1:])) if key[0] == "h" else written[key].wait(level)

    def close() -> bool:
        """True: it was said that something dropped will be there again."""
        warned: list[str] = []
        heard = logging.Handler()
        heard.emit = lambda record: warned.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("ebbtide").addHandler(heard)
        store.close()
        return any("was dropped, and is there again" in text for text in warned)

    calls = {"there": there, "put": put, "drop": drop, "wait": wait, "close": close}
    print(json.dumps({"ok": there()}), flush=True)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            print(json.dumps({"ok": calls[name](*arguments)}), flush=True)
        except ebbtide.Error as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)


if __name__ == "__main__":
    worker(sys.argv[1])
