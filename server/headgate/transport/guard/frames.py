"""HTTP/2 frames as the guard writes them. Pure: numbers and bytes in, bytes out.

Header fields are written as literals that are never indexed: they leave the compression
state alone that the front shares with its caller.
"""

from struct import Struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, _, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED = 0x1, 0x4, 0x8
NO_ERROR, PROTOCOL_ERROR, FRAME_SIZE_ERROR = 0x0, 0x1, 0x6
CANCEL, ENHANCE_YOUR_CALM = 0x8, 0xB

HEADER_BYTES = 9
PREFIX_BYTES = 5
MAX_FRAME_BYTES = 16_384
"""Size that the front allows, and the least that HTTP/2 lets anybody allow."""
MAX_STREAM = 2**31 - 1

HEADER = Struct(">IBI")
"""Length and kind in one number (`length << 8 | kind`), flags, stream."""
PREFIX = Struct(">BI")
"""Before each gRPC message: whether it is compressed, and its length."""
_NUMBER = Struct(">I")
_GOAWAY = Struct(">II")


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return HEADER.pack(len(payload) << 8 | kind, flags, stream) + payload


def data_frames(stream: int, payload: bytes, *, end: bool) -> bytes:
    """Cut a payload into as many frames as it takes; none for nothing, unless it is the end."""
    starts = range(0, len(payload), MAX_FRAME_BYTES) or (range(1) if end else range(0))
    return b"".join(
        frame(
            DATA,
            END_STREAM if end and start + MAX_FRAME_BYTES >= len(payload) else 0,
            stream,
            payload[start : start + MAX_FRAME_BYTES],
        )
        for start in starts
    )


def reset(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream, _NUMBER.pack(code))


def window_update(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, _NUMBER.pack(increment))


def goaway(last_stream: int, code: int) -> bytes:
    return frame(GOAWAY, 0, 0, _GOAWAY.pack(last_stream, code))


def literal(name: bytes, value: bytes) -> bytes:
    """A header field; both are shorter than 127 bytes."""
    return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value
