"""Reads a store as docs/format.md says, and by nothing else: what that page leaves out, this cannot read."""

import pathlib
import re
import struct
from dataclasses import dataclass

import xxhash

BLOCK, SECTOR = 4096, 512
BODY, SEALED = 144, 496  # of a compact record's first sector: where its body begins, and ends
LIVE, DROPPED, NOTHING, LIST, WRITTEN = 1, 2, 3, 4, 5
HEAD = struct.Struct("<I16sQQQQQQqIIIIq16s16s")
MOST = 1 << 62  # of a sequence


class Damaged(Exception):
    pass


class NewerFormat(Exception):
    pass


@dataclass
class Record:
    segment: int
    offset: int
    sequence: int
    history: bytes
    version: int
    metadata: bytes
    regions: dict[int, bytes] | None  # None: the payload is damaged


def checksum(data: bytes) -> bytes:
    return xxhash.xxh3_128_digest(data)


def sector(data: bytes, letters: bytes, newest: int = 1) -> bytes:
    """The bytes between the format's number and the checksum."""
    if len(data) < SECTOR or data[:8] != letters or checksum(data[:496]) != data[496:SECTOR]:
        raise Damaged(letters)
    (form,) = struct.unpack_from("<I", data, 8)
    if form > newest:
        raise NewerFormat(form)
    return data[12:496]


def first_block(data: bytes, letters: bytes) -> tuple[bytes, int, int]:
    level, store, number, second = struct.unpack_from("<I16sQq", sector(data, letters))
    if (
        level not in ((1, 2) if letters == b"EBBSTORE" else (0,))
        or any(data[48:496])
        or any(data[SECTOR:BLOCK])
        or len(data) < BLOCK
    ):
        raise Damaged(letters)
    return store, number, second


def up(n: int, to: int = BLOCK) -> int:
    return -(-n // to) * to


def head(data: bytes, store: bytes, segment: int, offset: int, length: int):
    """(kind, header, payload, record, sequence, version, name, regions, metadata, block, body's and name's checksum, what it lists)"""
    fields = sector(data, b"EBBRECRD", newest=3)
    compact = data[8] == 2
    unit = SECTOR if compact else BLOCK
    kind, uuid, number, place, header, payload, record, *rest = HEAD.unpack_from(fields)
    sequence, version, name, regions, metadata, block, _written, body, whose = rest
    listed = struct.unpack_from(f"<{min(regions, 44)}Q", fields, HEAD.size) if compact and kind == LIST else ()
    if (any(fields[HEAD.size + 8 * len(listed) :]) and not (compact and kind == LIVE)) or (uuid, number, place) != (
        store,
        segment,
        offset,
    ):
        raise Damaged("place")
    if kind not in (LIVE, DROPPED, NOTHING, *[LIST] * compact, WRITTEN) or (kind == WRITTEN) != (data[8] == 3):
        raise Damaged("kind")
    if record == 0 or record % unit or offset % unit:
        raise Damaged("size")
    if compact and offset % BLOCK + record > BLOCK:
        raise Damaged("it reaches into the next block")
    if kind == LIST:
        others = (payload, sequence, version, name, metadata, block, _written, any(body), any(whose))
        if header != SECTOR or not 0 < regions <= 44 or any(others):
            raise Damaged("list")
        if any(each % SECTOR not in (DROPPED, NOTHING) or not BLOCK <= each < offset for each in listed):
            raise Damaged("what it lists")
    elif compact and kind != NOTHING:
        needed = up(SECTOR - SEALED + BODY + name + 20 * regions + metadata + payload, SECTOR)
        if header != needed or header >= BLOCK or record < header or payload > BLOCK or block:
            raise Damaged("sizes")
    elif kind != NOTHING:
        sums = -(-payload // block) if block else 0
        needed = up(SECTOR + name + 20 * regions + 16 * sums + metadata)
        if header != needed or record != header + up(payload) or needed > 1 << 30 or block % BLOCK or name > 65536:
            raise Damaged("sizes")
    if kind != NOTHING:
        if sequence > MOST or (kind == LIVE and any(whose)):
            raise Damaged("fields")
    if kind in (LIVE, WRITTEN) and offset + record > length:
        raise Damaged("end")
    return kind, header, payload, record, sequence, version, name, regions, metadata, block, body, whose, listed


def read_record(data: bytes, segment: int, offset: int, fields) -> Record:
    _, header, payload, _, sequence, version, name, regions, metadata, block, body_sum, *_ = fields
    body = data[offset + SECTOR : offset + header]
    compact = header < BLOCK
    if compact:
        body = data[offset + BODY : offset + SEALED] + body
    if checksum(body) != body_sum:
        raise Damaged("body")
    at = name
    places = [struct.unpack_from("<IQQ", body, at + 20 * i) for i in range(regions)]
    at += 20 * regions
    begin, intact = offset + header, True
    for start in range(0, payload if block else 0, block or 1):
        intact &= checksum(data[begin + start : begin + min(start + block, payload)]) == body[at : at + 16]
        at += 16
    if any(body[at + metadata + (payload if compact else 0) :]):
        raise Damaged("padding")
    inside, begin = (body, at + metadata) if compact else (data, begin)
    content = {rid: inside[begin + where : begin + where + size] for rid, size, where in places}
    return Record(
        segment, offset, sequence, body[:name], version, body[at : at + metadata], content if intact else None
    )


def read_segment(data: bytes, store: bytes, segment: int) -> tuple[list[Record], list[tuple], list[int]]:
    """The records, what was dropped (checksum of the name, version, sequence), and where there is damage."""
    records, drops, damages, offset, expected, listed, heads = [], [], [], BLOCK, True, {}, set()
    try:
        if first_block(data, b"EBBSEGMT")[:2] != (store, segment):
            damages.append(0)
    except Damaged:
        if any(data[:BLOCK]):
            damages.append(0)
    while offset + SECTOR <= len(data):
        try:
            fields = head(data[offset : offset + SECTOR], store, segment, offset, len(data))
        except (Damaged, NewerFormat) as wrong:
            if expected and isinstance(wrong, NewerFormat):
                raise
            here = data[offset : offset + SECTOR]
            if (expected and any(here)) or (
                here[:8] == b"EBBRECRD" and here[16:48] == store + struct.pack("<QQ", segment, offset)
            ):
                damages.append(offset)
            offset, expected = offset + SECTOR, False
            continue
        heads.add(offset)
        try:
            if fields[0] == LIVE:
                records.append(read_record(data, segment, offset, fields))
                damages += [offset] if records[-1].regions is None else []
            elif fields[0] == DROPPED:
                drops.append((fields[11], fields[5], fields[4]))
            for each in fields[12]:
                listed.setdefault(each // SECTOR * SECTOR, each % SECTOR)
        except Damaged:
            damages.append(offset)
        offset, expected = offset + fields[3], True
    for one in records:
        if listed.get(one.offset) == DROPPED:
            drops.append((checksum(one.history), one.version, one.sequence))
    records = [one for one in records if one.offset not in listed]
    nothing = [at for at, kind in listed.items() if kind == NOTHING]
    return records, drops, [at for at in damages if at not in (listed if at in heads else nothing)]


def read_store(directory: pathlib.Path) -> tuple[dict[tuple[bytes, int], Record], list[tuple[str, int]]]:
    """The checkpoints by history and version, and the places of damage."""
    data = (directory / "store").read_bytes()
    store = first_block(data, b"EBBSTORE")[0]
    if len(data) != BLOCK:
        raise Damaged("store")
    found, dropped, damages = {}, {}, []
    for path in sorted(directory.iterdir()):
        name = re.fullmatch(r"segment-(\d{8,})\.ebb", path.name)
        if not name:
            continue
        records, drops, wrong = read_segment(path.read_bytes(), store, int(name[1]))
        damages += [(path.name, offset) for offset in wrong]
        for record in records:
            key = (record.history, record.version)
            if key not in found or found[key].sequence < record.sequence:
                found[key] = record
        for whose, version, sequence in drops:
            dropped[whose, version] = max(sequence, dropped.get((whose, version), 0))
    for key, record in list(found.items()):
        if record.regions is None or dropped.get((checksum(record.history), record.version), 0) > record.sequence:
            del found[key]
    return found, damages
