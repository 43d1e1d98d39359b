"""The corpora of the fuzz targets: one tar archive each, tests/fuzz/corpus/TARGET.tar, which corpus_test.cpp reads too.

python tests/fuzz/corpus.py unpack TARGET FOLDER    a file for each input, as libFuzzer wants them
python tests/fuzz/corpus.py pack TARGET FOLDER      and back: the archive has what the folder has, and nothing else
"""

from __future__ import annotations

import pathlib
import sys
import tarfile

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"


def unpack(target: str, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(CORPUS / f"{target}.tar") as archive:
        for entry in archive:
            (folder / pathlib.PurePath(entry.name).name).write_bytes(archive.extractfile(entry).read())


def pack(target: str, folder: pathlib.Path) -> None:
    """The same bytes for the same inputs: without times and owners, in the order of names."""
    CORPUS.mkdir(exist_ok=True)
    with tarfile.open(CORPUS / f"{target}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(folder.iterdir()):
            entry = tarfile.TarInfo(path.name)
            entry.size = path.stat().st_size
            with path.open("rb") as content:
                archive.addfile(entry, content)


def sizes(target: str) -> list[int]:
    with tarfile.open(CORPUS / f"{target}.tar") as archive:
        return [entry.size for entry in archive]


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("pack", "unpack"):
        sys.exit(__doc__)
    {"pack": pack, "unpack": unpack}[sys.argv[1]](sys.argv[2], pathlib.Path(sys.argv[3]))
