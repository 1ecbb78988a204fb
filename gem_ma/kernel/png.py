"""Pixels as the bytes of a PNG, without a library: equal pixels give equal bytes on every
machine."""

from __future__ import annotations

import struct
import zlib

STORED = 65_535  # bytes of one stored block, by the format


def png(width: int, height: int, pixels: bytes) -> bytes:
    """A picture of `pixels`: red, green and blue of each, line by line from the top. Raises
    ValueError where their number does not fit."""
    if min(width, height) < 1 or len(pixels) != 3 * width * height:
        raise ValueError(f"{width} x {height} pixels take {3 * width * height} bytes")
    lines = (pixels[at : at + 3 * width] for at in range(0, len(pixels), 3 * width))
    # Every line begins with the number of its filter; 0 is none.
    data = b"".join(b"\0" + line for line in lines)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits a colour, RGB
    parts = ((b"IHDR", head), (b"IDAT", _stored(data)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _stored(data: bytes) -> bytes:
    """The data in zlib's format, not compressed: what a compressor makes differs between versions,
    and the digest of an image stands in records that are replayed."""
    blocks = [data[at : at + STORED] for at in range(0, len(data), STORED)]
    last = len(blocks) - 1
    made = [
        struct.pack("<BHH", number == last, len(block), len(block) ^ 0xFFFF) + block
        for number, block in enumerate(blocks)
    ]
    return b"\x78\x01" + b"".join(made) + struct.pack(">I", zlib.adler32(data))
