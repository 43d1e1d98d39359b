"""Memory that a program can no longer read, or may not write: each call names it, and no signal ends the program."""

import textwrap

import pytest
from child import run_python

SCRIPT = """
    import ctypes, faulthandler, mmap, os
    import numpy
    import ebbtide

    HANDLER, KIND = {handler!r}, {kind!r}
    PAGE, PAGES = 4096, 64
    libc = ctypes.CDLL(None, use_errno=True)

    def pages():
        file = os.memfd_create("field")
        os.truncate(file, PAGES * PAGE)
        array = numpy.frombuffer(mmap.mmap(file, PAGES * PAGE), numpy.uint8)
        array[:] = 7

        def refuse():
            if KIND == "truncated":
                os.truncate(file, PAGE)
            else:
                protection = mmap.PROT_READ if KIND == "read-only" else 0
                address = ctypes.c_void_p(array.ctypes.data + PAGE)
                assert libc.mprotect(address, (PAGES - 1) * PAGE, protection) == 0

        return array, refuse

    def error_of(call):
        try:
            call()
        except ebbtide.Error as error:
            return f"{type(error).__name__}: {error}"
        return "no error"

    def check(call, *words):
        said = error_of(call)
        assert all(word in said for word in words), said

    if HANDLER == "before":
        faulthandler.enable()
    with ebbtide.open(os.path.join(os.environ["TMPDIR"], "store"), device="cpu", device_cache="1MiB",
                      host_cache="2MiB", disk="64MiB", durability="storage") as store:
        good = numpy.arange(PAGES * PAGE, dtype=numpy.uint8)
        store.checkpoint(1, good)
        if HANDLER == "after":
            faulthandler.enable()
        bad, refuse = pages()
        refuse()
        if KIND != "read-only":
            check(lambda: store.checkpoint(2, bad), "InvalidArgument", "version 2", "cannot be read")
            with store.create_file("f", 1) as file:
                file.write(b"before")
                check(lambda: file.write(bad), "InvalidArgument", "f", "cannot be read")
                file.seek(6)
                file.write(b" and after")
                file.truncate()
            assert store.open_file("f").read() == b"before and after"
            for first, track in [(10, "everything"), (20, "auto"), (30, "digest")]:
                array, refuse = pages()
                store.protect(array, track=track)
                store.snapshot(first).wait("storage")
                array[:] = 8
                refuse()
                check(lambda: store.snapshot(first + 1).wait("storage"), "Lost", "region", "read")
                store.unprotect()
                store.protect(good, track=track)
                store.snapshot(first + 1).wait("storage")
                store.unprotect()
                assert (store.restore(first, keep=True) == 7).all()
                assert (store.restore(first + 1, keep=True) == good).all()
        check(lambda: store.restore(1, out=bad), "InvalidArgument", "version 1", "cannot be written to")
        with store.create_file("g", 1) as file:
            file.write(good)
        with store.open_file("g") as file:
            check(lambda: file.readinto(bad), "InvalidArgument", "g", "cannot be written to")
        assert (store.restore(1, keep=True) == good).all()
"""


@pytest.mark.parametrize("handler", ["none", "before", "after"])
@pytest.mark.parametrize("kind", ["truncated", "no access", "read-only"])
def test_it_is_named_and_nothing_is_lost(kind, handler, tmp_path, monkeypatch):
    """`handler`: whether Python's own handler of these signals was installed before the store's first copy, or after."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    child = run_python(textwrap.dedent(SCRIPT).replace("{handler!r}", repr(handler)).replace("{kind!r}", repr(kind)))
    assert child.returncode == 0, child.stderr
