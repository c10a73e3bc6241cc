"""Ogg pages around Opus packets, one packet a page, and back from pages to packets. Pure; it knows no codec.

Most muxers fill a page with up to a second of packets before they write it: live audio would wait in them. Here a packet is on the wire as
soon as it exists.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import Final

OPUS_RATE: Final = 48_000
"""Granule positions of Opus count samples at this rate, whatever the input's."""
_MAGIC: Final = b"OggS"
_HEAD: Final = struct.Struct("<4sBBqIIIB")
_CONTINUED, _FIRST, _LAST = 1, 2, 4
_TURNED: Final = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))
MAX_PACKET: Final = 1 << 20


class BrokenOgg(ValueError):
    """Bytes that are no Ogg stream; the message says where it broke."""


def checksum(page: bytes) -> int:
    """Ogg's CRC-32: the common polynomial, but neither bits turned round nor inverted."""
    turned = zlib.crc32(page.translate(_TURNED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{turned:032b}"[::-1], 2)


def page(packet: bytes, granule: int, number: int, *, first: bool = False, last: bool = False) -> bytes:
    """One packet as one page; ``granule`` is the position at its end. Raises ValueError for a packet above 65,024 bytes."""
    if len(packet) > 255 * 254 + 254:
        raise ValueError(f"a packet of {len(packet):,} bytes doesn't fit into a page")
    lacing = b"\xff" * (len(packet) // 255) + bytes([len(packet) % 255])
    kind = _FIRST * first | _LAST * last

    def whole(crc: int) -> bytes:
        return _HEAD.pack(_MAGIC, 0, kind, granule, 1, number, crc, len(lacing)) + lacing + packet

    return whole(checksum(whole(0)))


def opus_headers(head: bytes) -> bytes:
    """The two pages before the sound: ``head`` (an OpusHead) and empty tags."""
    vendor = b"plimsoll"
    tags = b"OpusTags" + struct.pack("<I", len(vendor)) + vendor + struct.pack("<I", 0)
    return page(head, 0, 0, first=True) + page(tags, 0, 1)


def opus_head(pre_skip: int, rate: int) -> bytes:
    """An OpusHead for one channel: ``pre_skip`` samples at 48 kHz are to be thrown away, ``rate`` was the input's."""
    return b"OpusHead" + struct.pack("<BBHIhB", 1, 1, pre_skip, rate, 0, 0)


def pre_skip_of(head: bytes) -> tuple[int, int]:
    """(samples to throw away, channels) of an OpusHead. Raises BrokenOgg."""
    if len(head) < 19 or head[:8] != b"OpusHead":
        raise BrokenOgg(f"its first packet is {head[:8]!r}, not OpusHead")
    return int.from_bytes(head[10:12], "little"), head[9]


@dataclass(slots=True)
class Demuxer:
    """Packets out of bytes that arrive in pieces. Pages of other streams than the first are passed over; checksums are not judged."""

    granule: int = -1
    """Position at the end of the last page that ended a packet."""
    ended: bool = False
    _bytes: bytearray = field(default_factory=bytearray)
    _begun: bytearray = field(default_factory=bytearray)
    _serial: int | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """The packets that are whole now. Raises BrokenOgg."""
        self._bytes += data
        packets: list[bytes] = []
        while len(self._bytes) >= _HEAD.size:
            magic, _, kind, granule, serial, _, _, n = _HEAD.unpack_from(self._bytes)
            if magic != _MAGIC:
                raise BrokenOgg(f"a page begins with {bytes(magic)!r}, not OggS")
            if len(self._bytes) < _HEAD.size + n:
                break
            lacing = bytes(self._bytes[_HEAD.size : _HEAD.size + n])
            begin = _HEAD.size + n
            end = begin + sum(lacing)
            if len(self._bytes) < end:
                break
            body = bytes(self._bytes[begin:end])
            del self._bytes[:end]
            if self._serial is None:
                self._serial = serial
            if serial == self._serial:
                packets += self._packets(lacing, body, bool(kind & _CONTINUED))
                self.granule = granule if granule >= 0 else self.granule
                self.ended = self.ended or bool(kind & _LAST)
        return packets

    def _packets(self, lacing: bytes, body: bytes, continued: bool) -> list[bytes]:
        packets, at = [], 0
        if not continued:
            self._begun.clear()
        for size in lacing:
            self._begun += body[at : at + size]
            at += size
            if len(self._begun) > MAX_PACKET:
                raise BrokenOgg("a packet of more than 1 MiB")
            if size < 255:
                packets.append(bytes(self._begun))
                self._begun.clear()
        return packets
