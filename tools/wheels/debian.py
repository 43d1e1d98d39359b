"""What Debian's registry gives: another release's Python, unpacked beside, and clean systems to try wheels in."""

from __future__ import annotations

import os
import pathlib
import platform
import shutil
import subprocess

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
MACHINE = platform.machine()


class Missing(Exception):
    """Something that this system lacks, with what to do."""


def mirror() -> str:
    """The archive that this system's own apt uses."""
    listing = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE) $(REPO_URI)"], capture_output=True, text=True
    )
    for line in listing.stdout.splitlines():
        uri = line.split()[-1].rstrip("/")
        if uri.endswith("/debian"):
            return uri
    raise Missing("this needs the archive of Debian: run it on Debian 12")


def python_beside(where: pathlib.Path, release: str, version: str) -> pathlib.Path:
    """The interpreter of Debian's `release` with its headers, in `where`; its C library is brought along, since this
    system's is older. What it returns runs as any python3 does, and packages are installed into `where`."""
    python, root = where / "venv/bin/python", where / "root"
    if python.exists():
        return python
    shutil.rmtree(where, ignore_errors=True)
    for folder in ("lists/partial", "cache/archives/partial", "debs", "root", "venv/bin"):
        (where / folder).mkdir(parents=True)
    (where / "status").touch()
    (where / "sources.list").write_text(f"deb [signed-by={KEYS}] {mirror()} {release} main\n")
    options = {
        "Dir::State": where, "Dir::State::lists": where / "lists", "Dir::State::status": where / "status",
        "Dir::Cache": where / "cache", "Dir::Etc::sourcelist": where / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null", "APT::Sandbox::User": "",
    }  # fmt: skip
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    subprocess.run([*apt, "update"], check=True)
    packages = [f"python{version}-minimal", f"libpython{version}-minimal", f"libpython{version}-stdlib", f"libpython{version}-dev",
                "libc6", "zlib1g", "libexpat1", "libssl3t64", "libffi8", "libbz2-1.0", "liblzma5"]  # fmt: skip
    subprocess.run([*apt, "download", *packages], cwd=where / "debs", check=True)
    for package in sorted((where / "debs").glob("*.deb")):
        subprocess.run(["dpkg", "-x", package, root], check=True)
    libraries = root / f"usr/lib/{MACHINE}-linux-gnu"
    headers = root / "usr/include"  # Debian's pyconfig.h includes the machine's own, which a compiler must find as well
    (headers / f"python{version}/{MACHINE}-linux-gnu").symlink_to(f"../{MACHINE}-linux-gnu")
    loader = next(libraries.glob("ld-linux-*.so.*"))
    (where / "venv/pyvenv.cfg").write_text(f"home = {root}/usr/bin\nversion = {version}\n")
    python.write_text(
        f'#!/bin/sh\nexec {loader} --library-path {libraries} --argv0 "$0" {root}/usr/bin/python{version} "$@"\n'
    )
    python.chmod(0o755)
    return python


def clean_root(where: pathlib.Path, release: str) -> pathlib.Path:
    """A system of Debian's `release` in `where` with Python and nothing to compile with."""
    if (where / "usr/bin/python3").exists():
        return where
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        raise Missing("this needs debootstrap (apt-get install debootstrap), run as root")
    shutil.rmtree(where, ignore_errors=True)
    where.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["debootstrap", "--variant=minbase", "--include=python3,python3-venv", release, where, mirror()],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return where
