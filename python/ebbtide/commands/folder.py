"""A directory to write files into, and nowhere else: by descriptors, following no links."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from .outcome import Refused

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BEGUN = re.compile(r"\.(region-\d+\.bin|checkpoint\.json|version--?\d+(\.(npz|json))?)\.\d+-\d+\.part", re.ASCII)


def is_left_over(name: str) -> bool:
    """Whether it is an unfinished file, without its final name."""
    return _BEGUN.fullmatch(name) is not None


class Folder:
    """An open directory; `path` is for messages. Close it, or use it in a `with`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._fd = descriptor

    @classmethod
    def at(cls, path: Path) -> Folder:
        """Creates the directory if necessary. Links in this path, the caller's own, are followed."""
        path.mkdir(parents=True, exist_ok=True)
        return cls(path, os.open(path, _DIRECTORY))

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._fd)

    def folder(self, name: str) -> Folder:
        """The directory of that name in it, created if necessary; anything else is refused, a link to one too."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=self._fd)
        try:
            return Folder(self.path / name, os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self._fd))
        except NotADirectoryError:
            raise Refused(f"{self.path / name}: it is not a directory (links are not followed)") from None

    def has(self, name: str) -> bool:
        """Whether the name is taken."""
        try:
            os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    @contextlib.contextmanager
    def batch(self, overwrite: bool) -> Iterator[Callable[[str], IO[bytes]]]:
        """Gives a function that begins a file; all get their names when the `with` ends well, else they are removed.

        Existing files of these names are replaced only if `overwrite`. All processes together write one batch at a time
        in a directory, so unfinished files there are of a killed process, and are removed.
        """
        with self._turn():
            yield from self._batch(overwrite)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError:  # no locks here: another export may be running, so nothing is removed
            yield
            return
        try:
            for name in os.listdir(self._fd):
                if is_left_over(name):
                    with contextlib.suppress(OSError):
                        os.unlink(name, dir_fd=self._fd)
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _batch(self, overwrite: bool) -> Iterator[Callable[[str], IO[bytes]]]:
        begun: list[tuple[str, str]] = []
        opened: list[IO[bytes]] = []

        def begin(name: str) -> IO[bytes]:
            beside = f".{name[:100]}.{os.getpid()}-{len(begun)}.part"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=self._fd)  # of an earlier process with this id
            out = os.fdopen(os.open(beside, _NEW, 0o666, dir_fd=self._fd), "w+b")
            begun.append((beside, name))
            opened.append(out)
            return out

        try:
            yield begin
            for out in opened:
                out.close()
            while begun:
                beside, name = begun[0]
                if not overwrite and self.has(name):
                    raise Refused(f"{self.path / name} exists already; --force overwrites it")
                os.rename(beside, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
                begun.pop(0)
        finally:
            for out in opened:
                out.close()
            for beside, _ in begun:
                with contextlib.suppress(OSError):
                    os.unlink(beside, dir_fd=self._fd)

    def remove_if_empty(self, name: str) -> None:
        """The directory of that name."""
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=self._fd)
