"""The bytes of a response, decoded under a cap. Nothing but plain bytes is asked for, and some
servers and proxies compress all the same.

A few kilobytes on the wire may stand for gigabytes, so decoding stops at the cap and not behind
it: memory stays flat, whoever sends what, and however many at once.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from typing import Any, Literal

from gem_ma.engines.api.faults import Fault

ERROR_BYTES = 64 * 1024  # of an error's body that are read
PACKED_BYTES = 2 * 1024 * 1024  # of a body that came compressed, decoded
_ANY_HEADER = 47  # zlib's number for gzip or zlib, whichever it is


async def unpacked(
    response: Any, most: int, beyond: Literal["refuse", "cut"]
) -> AsyncIterator[bytes]:
    """The decoded pieces of a body, `most` bytes at most; what goes beyond is cut, or refused.

    Raises Fault for a body that is too long, in an encoding that is not known, or broken.
    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        inflate = None
    elif encoding in ("gzip", "x-gzip", "deflate"):
        inflate = zlib.decompressobj(_ANY_HEADER)
        most = min(most, PACKED_BYTES)
    elif beyond == "cut":
        yield f"(a body in {encoding}, which was not asked for)".encode()
        return
    else:
        raise Fault(
            "bad_reply",
            f"the body comes in {encoding}, which was not asked for",
            status=response.status_code,
        )
    # asked to inflate one byte more than is left, so that a body that is too long shows
    left = most
    try:
        async for raw in response.stream:
            part = raw if inflate is None else inflate.decompress(raw, left + 1)
            yield part[:left]
            left -= len(part)
            if left < 0:
                break
    except zlib.error as error:
        if beyond == "refuse":
            raise Fault(
                "transport",
                f"the body is no whole {encoding}: {error}",
                status=response.status_code,
            ) from None
    # an error's body may be cut and broken: its beginning says enough
    if left < 0 and beyond == "refuse":
        raise Fault(
            "bad_reply", f"the body is longer than {most} bytes", status=response.status_code
        )
    if (
        inflate is not None  # half a stream inflates without an error
        and left >= 0
        and beyond == "refuse"
        and (inflate.unused_data or not inflate.eof)
    ):
        what = "goes on behind its end" if inflate.eof else "ended early"
        raise Fault(
            "transport", f"the body is no whole {encoding}: it {what}", status=response.status_code
        )
