"""A file system that passes everything on to a directory: `python fuse_server.py DIRECTORY MOUNTPOINT`.

Stopped by SIGSTOP it answers nothing, and what the kernel is asked for on it waits. While there is a file
DIRECTORY.fails, writes, syncs, new files and new names fail with EIO.
"""

from __future__ import annotations

import errno
import os
import sys

import mfusepy


class PassOn(mfusepy.Operations):
    """Thread safety: each call is of its own; the kernel's file handles are the descriptors."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def _at(self, path: str) -> str:
        return self.directory + path

    def _change(self) -> None:
        if os.path.exists(self.directory + ".fails"):
            raise mfusepy.FuseOSError(errno.EIO)

    def getattr(self, path, fh=None):
        found = os.lstat(self._at(path))
        return {name: getattr(found, name) for name in
                ("st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks")} | {
                    "st_atime": found.st_atime, "st_mtime": found.st_mtime, "st_ctime": found.st_ctime}  # fmt: skip

    def readdir(self, path, fh):
        return [".", "..", *os.listdir(self._at(path))]

    def access(self, path, mode):
        if not os.access(self._at(path), mode):
            raise mfusepy.FuseOSError(errno.EACCES)
        return 0

    def mkdir(self, path, mode):
        self._change()
        return os.mkdir(self._at(path), mode) or 0

    def rmdir(self, path):
        return os.rmdir(self._at(path)) or 0

    def chmod(self, path, mode):
        return os.chmod(self._at(path), mode) or 0

    def create(self, path, mode, fi=None):
        self._change()
        return os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

    def open(self, path, flags):
        return os.open(self._at(path), flags & os.O_ACCMODE)

    def read(self, path, size, offset, fh):
        return os.pread(fh, size, offset)

    def write(self, path, data, offset, fh):
        self._change()
        return os.pwrite(fh, data, offset)

    def truncate(self, path, length, fh=None):
        return os.truncate(self._at(path) if fh is None else fh, length) or 0

    def fsync(self, path, datasync, fh):
        self._change()
        return os.fsync(fh) or 0

    def fsyncdir(self, path, datasync, fh):
        return 0

    def unlink(self, path):
        return os.unlink(self._at(path)) or 0

    def rename(self, old, new, flags=0):
        self._change()
        return os.rename(self._at(old), self._at(new)) or 0

    def statfs(self, path):
        found = os.statvfs(self._at(path))
        return {name: getattr(found, name) for name in
                ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree")}  # fmt: skip

    def flush(self, path, fh):
        return 0

    def release(self, path, fh):
        return os.close(fh) or 0


if __name__ == "__main__":
    mfusepy.FUSE(PassOn(sys.argv[1]), sys.argv[2], foreground=True, fsname="ebb-trials")
