"""Writes a store as docs/format.md says, and by nothing else; then hurts it."""

from __future__ import annotations

import pathlib
import struct
from dataclasses import dataclass

import xxhash

BLOCK, SECTOR = 4096, 512
LIVE, DROPPED, NOTHING = 1, 2, 3
CREATED = 1_700_000_000_000_000_000


def checksum(data: bytes) -> bytes:
    return xxhash.xxh3_128_digest(data)


def up(n: int) -> int:
    return -(-n // BLOCK) * BLOCK


def sealed(letters: bytes, fields: bytes, form: int = 1) -> bytes:
    sector = (letters + struct.pack("<I", form) + fields).ljust(SECTOR - 16, b"\0")
    return sector + checksum(sector)


@dataclass
class Record:
    segment: int
    offset: int
    header: int  # bytes
    payload: int
    length: int  # of all
    fields: tuple

    @property
    def payload_offset(self) -> int:
        return self.offset + self.header


class Writer:
    """A store in a directory, all of it written by `write()`."""

    def __init__(self, directory: pathlib.Path, level: int = 2, form: int = 1) -> None:
        self.directory = directory
        self.id = bytes(range(16))
        self.files: dict[str, bytearray] = {}
        store = sealed(b"EBBSTORE", struct.pack("<I16sQq", level, self.id, 1000, CREATED), form)
        self.files["store"] = bytearray(store.ljust(BLOCK, b"\0"))
        self.sequence = 1

    @staticmethod
    def segment_name(number: int) -> str:
        return f"segment-{number:08}.ebb"

    def segment(self, number: int) -> bytearray:
        name = self.segment_name(number)
        if name not in self.files:
            head = sealed(b"EBBSEGMT", struct.pack("<I16sQq", 0, self.id, number, 0))
            self.files[name] = bytearray(head.ljust(BLOCK, b"\0"))
        return self.files[name]

    def head(self, kind: int, record: Record, whose: bytes = b"") -> bytes:
        fields = struct.pack("<I16sQQQQQQqIIIIq16s", kind, self.id, record.segment, record.offset, *record.fields)
        return sealed(b"EBBRECRD", fields + whose)

    def add(
        self, history: bytes, version: int, *regions: bytes, metadata: bytes = b"", segment: int = 1, block: int = BLOCK
    ) -> Record:
        to = self.segment(segment)
        payload, places = b"", b""
        for number, region in enumerate(regions):
            payload = payload.ljust(-(-len(payload) // 256) * 256, b"\0")
            places += struct.pack("<IQQ", number, len(region), len(payload))
            payload += region
        sums = b"".join(checksum(payload[i : i + block]) for i in range(0, len(payload), block))
        body = history + places + sums + metadata
        header = up(SECTOR + len(body))
        body = body.ljust(header - SECTOR, b"\0")
        length = header + up(len(payload))
        fields = (
            header,
            len(payload),
            length,
            self.sequence,
            version,
            len(history),
            len(regions),
            len(metadata),
            block,
            CREATED + self.sequence * 10**9,
            checksum(body),
        )
        self.sequence += 1
        record = Record(segment, len(to), header, len(payload), length, fields)
        to += self.head(LIVE, record) + body + payload.ljust(up(len(payload)), b"\0")
        return record

    def drop(self, record: Record, named: bool = True) -> None:
        """As a process that ended before it punched the hole; unnamed: as before 0.1.0 was released."""
        to = self.segment(record.segment)
        name = bytes(to[record.offset + SECTOR :][: record.fields[5]])
        to[record.offset : record.offset + SECTOR] = self.head(DROPPED, record, checksum(name) if named else b"")

    def flip(self, name: str, offset: int) -> None:
        self.files[name][offset] ^= 1

    def hurt(self, record: Record, offset: int) -> None:
        """Flips a bit `offset` bytes after the record's start."""
        self.flip(self.segment_name(record.segment), record.offset + offset)

    def write(self) -> pathlib.Path:
        self.directory.mkdir(mode=0o700, exist_ok=True)
        for name, data in self.files.items():
            path = self.directory / name
            path.write_bytes(data)
            path.chmod(0o600)
        return self.directory


def index_of(writer: Writer, listed: list[tuple[bytes, Record]]) -> bytes:
    """An index that lists these records, ascending by place."""
    names = list(dict.fromkeys(name for name, _ in listed))
    body = struct.pack("<Q", len(names)) + b"".join(struct.pack("<I", len(name)) + name for name in names)
    segments = sorted(name for name in writer.files if name.startswith("segment"))
    body += struct.pack("<Q", len(segments))
    for file in segments:
        number, size = int(file[8:16]), len(writer.files[file])
        own = [(name, record) for name, record in listed if record.segment == number]
        body += struct.pack("<QQQQQQ", number, size, size, 0, writer.sequence - 1, 0) + struct.pack("<Q", len(own))
        for name, record in own:
            header, payload, length, sequence, version, _, regions, metadata, block, written, sum_ = record.fields
            body += struct.pack(
                "<IQQQQQqq", names.index(name), record.offset, header, payload, length, sequence, version, written
            )
            body += struct.pack("<III16s", regions, metadata, block, sum_)
    body += struct.pack("<Q", 0)
    fields = struct.pack("<I16sQQ16s", 0, writer.id, SECTOR + len(body), writer.sequence, checksum(body))
    return sealed(b"EBBINDEX", fields) + body


def layout(
    structure: int,
    keys: list[int | str],
    leaves: list[tuple[str, tuple[int, ...]]],
    origins: list[tuple[int, int]] | None = None,
    strides: list[tuple[int, ...]] | None = None,
) -> bytes:
    """What the Python interface writes beside arrays (python/src/layout.cpp): 0 alone, 1 list, 2 tuple, 3 dict.

    origins: of each, its library (0 NumPy, 1 PyTorch, 2 CuPy, 3 JAX) and its GPU, or -1.
    strides: of each, in elements; none: in C order.
    """

    def number(value: int) -> bytes:
        out = b""
        while value >= 0x80:
            out += bytes([value & 0x7F | 0x80])
            value >>= 7
        return out + bytes([value])

    def text(value: bytes) -> bytes:
        return number(len(value)) + value

    shapes = bytes([structure]) + number(len(leaves))
    for key in keys:
        shapes += b"i" + number(key) if isinstance(key, int) else b"s" + text(key.encode("utf-8", "surrogateescape"))
    for i, (dtype, shape) in enumerate(leaves):
        shapes += text(dtype.encode()) + number(len(shape)) + b"".join(number(length) for length in shape)
        if strides is not None:
            shapes += number(len(strides[i])) + b"".join(number(step % (1 << 64)) for step in strides[i])
    whence = bytes(library | gpu + 1 << 2 for library, gpu in origins or [(0, -1)] * len(leaves))
    return (b"\xeb\x01" if strides is None else b"\xeb\x03") + text(shapes) + whence
