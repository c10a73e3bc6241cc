"""This module encodes samples into the bytes of a wire format and decodes them again. Pure.

PCM16, mu-law, A-law, float32 and WAV are made here; Opus (in Ogg pages too), FLAC, MP3 and AAC come from FFmpeg through
``av`` (``pip install plimsoll-slo[speech]``). Received bytes may be cut anywhere, and broken ones raise ``BrokenAudio``
alone.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from plimsoll.harness.errors import HarnessFault
from plimsoll.scenarios.media.sound import (
    NotWav,
    WavHeader,
    alaw_decoded,
    alaw_encoded,
    mono,
    mulaw_decoded,
    mulaw_encoded,
    parse_header,
    wav_bytes,
)

Int16 = npt.NDArray[np.int16]

OPUS_RATES: Final = (8000, 12000, 16000, 24000, 48000)
OPUS_MS: Final = (2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0)
OPUS_BITRATE: Final = 24_000
OPUS_PRE_SKIP: Final = 312
"""Samples at 48 kHz: the encoder's look-ahead of 6.5 ms, which a decoder throws away."""
_CONTAINERS: Final = {"flac": ("flac", "flac"), "mp3": ("mp3", "libmp3lame"), "aac": ("adts", "aac")}
_DECODERS: Final = {"opus": "libopus", "flac": "flac", "mp3": "mp3float", "aac": "aac"}


#: Samples that one answer may decode to: as many as the largest body holds as PCM. A silent minute takes a few bytes.
MAX_SAMPLES: Final = 1 << 27


class BrokenAudio(ValueError):
    """Bytes that the codec can't make sense of."""


def library(wanted_for: str) -> Any:
    """The module ``av``. Raises HarnessFault with how to install it."""
    try:
        import av
    except ImportError:
        raise HarnessFault(
            f"{wanted_for} needs the library av, which isn't there. Install it: pip install plimsoll-slo[speech]"
        ) from None
    return av


def opus_packets(pcm: Int16, rate: int, frame: int, bitrate: int = OPUS_BITRATE) -> list[bytes]:
    """One packet for each ``frame`` samples of ``pcm``, the last filled up with silence, and one more for the encoder's
    look-ahead.

    ``rate`` and ``frame`` must be Opus's own (OPUS_RATES, OPUS_MS). Raises HarnessFault when there is no ``av``.
    """
    av = library("opus")
    coder = av.CodecContext.create("libopus", "w")
    coder.sample_rate, coder.layout, coder.format, coder.bit_rate = rate, "mono", "s16", bitrate
    coder.options = {"frame_duration": f"{frame * 1000 / rate:g}", "application": "voip"}
    coder.open()
    packets = []
    for at in range(0, len(pcm), frame):
        block = np.zeros((1, frame), np.int16)
        part = pcm[at : at + frame]
        block[0, : len(part)] = part
        sound = av.AudioFrame.from_ndarray(block, format="s16", layout="mono")
        sound.sample_rate, sound.pts = rate, at
        packets += [bytes(packet) for packet in coder.encode(sound)]
    return packets + [bytes(packet) for packet in coder.encode(None)]


def file_bytes(codec: str, pcm: Int16, rate: int) -> bytes:
    """A whole file of ``codec`` (flac, mp3, aac) with a mono recording in it. Raises HarnessFault."""
    av = library(codec)
    container_name, encoder = _CONTAINERS[codec]
    file = io.BytesIO()
    try:
        with av.open(file, "w", format=container_name) as container:
            stream = container.add_stream(encoder, rate=rate)
            stream.layout = "mono"
            sound = av.AudioFrame.from_ndarray(pcm[None, :], format="s16", layout="mono")
            sound.sample_rate = rate
            for packet in [*stream.encode(sound), *stream.encode(None)]:
                container.mux(packet)
    except (av.error.FFmpegError, ValueError) as error:
        raise HarnessFault(f"{codec} can't be written at {rate} Hz ({error}). Use another rate, or wav") from None
    return file.getvalue()


class PacketDecoder:
    """Samples out of a codec's packets. ``rate`` is known (not 0) once the first have come."""

    __slots__ = ("_av", "_codec", "_left", "rate")

    def __init__(self, codec: str) -> None:
        self._av = library(codec)
        self._codec = self._av.CodecContext.create(_DECODERS[codec], "r")
        self.rate = 0
        self._left = MAX_SAMPLES
        if codec == "opus":
            self._codec.sample_rate, self._codec.layout = 48_000, "mono"

    def packet(self, data: bytes) -> Int16:
        """Samples of one packet. Raises BrokenAudio."""
        return self._decoded([self._av.Packet(data)])

    def parsed(self, data: bytes) -> Int16:
        """Samples of the packets that are whole after ``data``, a piece of a stream. Raises BrokenAudio."""
        return self._decoded(self._found(data))

    def rest(self) -> Int16:
        """Samples of what the parser still holds when the stream is over. Raises BrokenAudio."""
        parts = []
        while packets := self._found(None):  # FLAC's parser gives up what it holds one by one
            parts.append(self._decoded(packets))
        return np.concatenate([*parts, self._decoded([None])])

    def _found(self, data: bytes | None) -> list[Any]:
        try:
            packets: list[Any] = self._codec.parse(data)
        except self._av.error.FFmpegError as error:
            raise BrokenAudio(str(error)) from None
        return packets

    def _decoded(self, packets: list[Any]) -> Int16:
        parts = [np.zeros(0, np.int16)]
        for packet in packets:
            try:
                frames = self._codec.decode(packet)
            except self._av.error.EOFError:
                continue
            except (self._av.error.FFmpegError, ValueError) as error:
                raise BrokenAudio(str(error)) from None
            for frame in frames:
                self.rate = self.rate or int(frame.sample_rate)
                self._left -= int(frame.samples)
                if self._left < 0:
                    raise BrokenAudio(f"it decodes to more than {MAX_SAMPLES} samples")
                parts.append(_mono(frame))
        return np.concatenate(parts)


def _mono(frame: Any) -> Int16:
    """The mean of all channels as 16 bits."""
    given = frame.to_ndarray()
    if not frame.format.is_planar:
        given = given.reshape(-1, len(frame.layout.channels)).T
    mean = given.mean(axis=0)
    if np.issubdtype(given.dtype, np.floating):
        mean = mean * 32768.0
    elif given.dtype == np.int32:
        mean = mean / 65536.0
    samples: Int16 = np.clip(np.rint(np.nan_to_num(mean)), -32768, 32767).astype(np.int16)
    return samples


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
    """One packet as one page; ``granule`` is the position at its end.

    Raises ValueError for a packet above 65,024 bytes.
    """
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
    """Packets out of bytes that arrive in pieces.

    Pages of other streams than the first are passed over; checksums are not judged.
    """

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


__all__ = [
    "BrokenAudio",
    "Decoder",
    "decodable",
    "decoder",
    "encodable",
    "encode_file",
    "encode_frames",
    "file_formats",
]

IntArray = npt.NDArray[np.int64]

_UNKNOWN: Final = b"\xff\xff\xff\xff"


def _pcm16(pcm: Int16) -> bytes:
    return pcm.astype("<i2", copy=False).tobytes()


def _float32(pcm: Int16) -> bytes:
    return (pcm.astype("<f4") / np.float32(32768)).tobytes()


def _from_float32(data: bytes) -> Int16:
    given = np.clip(np.nan_to_num(np.frombuffer(data, "<f4")), -1, 1)
    samples: Int16 = np.minimum(np.rint(given * 32768), 32767).astype(np.int16)
    return samples


@dataclass(frozen=True, slots=True)
class _Linear:
    """A codec in which every sample stands alone, in ``width`` bytes."""

    width: int
    encode: Callable[[Int16], bytes]
    decode: Callable[[bytes], Int16]


_LINEAR: Final[Mapping[str, _Linear]] = MappingProxyType(
    {
        "pcm16": _Linear(2, _pcm16, lambda data: np.frombuffer(data, "<i2").astype(np.int16)),
        "mulaw": _Linear(
            1, lambda pcm: mulaw_encoded(pcm).tobytes(), lambda data: mulaw_decoded(np.frombuffer(data, np.uint8))
        ),
        "alaw": _Linear(
            1, lambda pcm: alaw_encoded(pcm).tobytes(), lambda data: alaw_decoded(np.frombuffer(data, np.uint8))
        ),
        "float32": _Linear(4, _float32, _from_float32),
    }
)
_OPUS: Final = ("opus", "ogg-opus")
_FILES: Final = ("wav", "flac", "mp3", "aac", "ogg-opus")


def encodable() -> tuple[str, ...]:
    """Codecs for live frames."""
    return (*_LINEAR, "wav", *_OPUS)


def decodable() -> tuple[str, ...]:
    """Codecs that received audio may have."""
    return (*_LINEAR, "wav", *_OPUS, "flac", "mp3", "aac")


def file_formats() -> tuple[str, ...]:
    """Codecs that make a whole file."""
    return (*_FILES, *_LINEAR)


def codec_problems(codec: str, rate: int, frame_ms: float, where: str = "target.options") -> list[str]:
    """Why frames of ``frame_ms`` at ``rate`` can't be had in ``codec``, each as ``where.NAME: what. next step``; a
    missing library is one.
    """
    if codec not in encodable():
        return [f"{where}.codec: {codec!r} is unknown. Use one of {', '.join(encodable())}"]
    if codec not in _OPUS:
        return []
    found = []
    try:
        library(codec)
    except HarnessFault as fault:
        found += [f"{where}.codec: {text}" for text in fault.errors]
    if rate not in OPUS_RATES:
        found.append(f"{where}.rate: {codec} has no {rate} Hz. Use one of {', '.join(map(str, OPUS_RATES))}")
    if frame_ms not in OPUS_MS:
        known = ", ".join(f"{length:g}" for length in OPUS_MS)
        found.append(f"{where}.frame: {codec} has no frames of {frame_ms:g} ms. Use one of {known}")
    return found


def encode_frames(codec: str, pcm: Int16, rate: int, bounds: IntArray) -> tuple[bytes, ...]:
    """``pcm`` as one message for each frame; frame k is samples [bounds[k], bounds[k + 1]) of it.

    ``opus``: one packet a frame, the last filled up with silence (the encoder's look-ahead of 6.5 ms behind it is not
    sent). What precedes the sound (``wav``: a header of unknown length; ``ogg-opus``: two pages, then one packet a
    page) comes with the first frame, what follows it with the last. Raises HarnessFault for an unknown codec, a rate or
    frame it hasn't, or a library that is missing.
    """
    if codec in _OPUS:
        return _opus_frames(codec, pcm, rate, bounds)
    if codec not in encodable():
        raise HarnessFault(codec_problems(codec, rate, 20))
    linear = _LINEAR["pcm16" if codec == "wav" else codec]
    whole = linear.encode(pcm)
    at = (bounds * linear.width).tolist()
    frames = [whole[begin:end] for begin, end in pairwise(at)]
    if codec == "wav" and frames:
        frames[0] = _endless_header(rate) + frames[0]
    return tuple(frames)


def encode_file(codec: str, pcm: Int16, rate: int) -> bytes:
    """A whole recording: ``wav``, ``flac``, ``mp3``, ``aac`` (ADTS), ``ogg-opus`` (frames of 20 ms), or the bare
    samples of a linear codec.

    Raises HarnessFault for an unknown codec, a rate it hasn't, or a library that is missing.
    """
    if codec == "wav":
        return wav_bytes(pcm, rate)
    if codec in _LINEAR:
        return _LINEAR[codec].encode(pcm)
    if codec == "ogg-opus":
        frame = rate // 50
        return b"".join(encode_frames(codec, pcm, rate, np.append(np.arange(0, len(pcm), frame), len(pcm))))
    if codec not in _FILES:
        raise HarnessFault(f"target.options.codec: {codec!r} is unknown. Use one of {', '.join(file_formats())}")
    return file_bytes(codec, pcm, rate)


def _endless_header(rate: int) -> bytes:
    """Of a WAV whose length isn't known yet: all sizes are all ones."""
    head = wav_bytes(np.zeros(0, np.int16), rate)
    return head[:4] + _UNKNOWN + head[8:40] + _UNKNOWN


def _opus_frames(codec: str, pcm: Int16, rate: int, bounds: IntArray) -> tuple[bytes, ...]:
    spans = np.diff(bounds)
    if not len(spans):
        return ()
    longest_ms = float(spans.max()) * 1000 / rate
    # A clip shorter than one frame takes the next length that there is.
    frame_ms = longest_ms if len(spans) > 1 else min((ms for ms in OPUS_MS if ms >= longest_ms), default=longest_ms)
    found = codec_problems(codec, rate, frame_ms)
    if found:
        raise HarnessFault(found)
    frame = round(frame_ms * rate / 1000)
    packets = opus_packets(pcm[bounds[0] : bounds[-1]], rate, frame)
    n, scale = len(spans), OPUS_RATE // rate
    if codec == "opus":
        return tuple(packets[:n])
    # The last page's position says where the sound ends: before the silence that filled its frame.
    over = OPUS_PRE_SKIP + int(bounds[-1] - bounds[0]) * scale
    packets = packets[: -(-over // (frame * scale))]
    pages = [
        page(packet, min((k + 1) * frame * scale, over), k + 2, last=k == len(packets) - 1)
        for k, packet in enumerate(packets)
    ]
    frames = [*pages[: n - 1], b"".join(pages[n - 1 :])]
    frames[0] = opus_headers(opus_head(OPUS_PRE_SKIP, rate)) + frames[0]
    return tuple(frames)


class Decoder(Protocol):
    """Received bytes into samples, piece by piece. Single use."""

    @property
    def rate(self) -> int:
        """Samples a second; 0 until it is known."""

    def feed(self, data: bytes) -> Int16:
        """The samples that are whole now, mono. Raises BrokenAudio."""

    def finish(self) -> Int16:
        """What is left when no more bytes come. Raises BrokenAudio."""


def decoder(codec: str, rate: int) -> Decoder:
    """A fresh decoder; ``rate`` is for formats that don't say theirs (the linear ones). ``opus``: each ``feed`` is one
    packet.

    Opus always comes at 48 kHz. FLAC's frames are known by the start of the next few, so they come late: its first
    sound is no measure. Raises HarnessFault for an unknown codec or a library that is missing.
    """
    if codec in _LINEAR:
        return _LinearDecoder(_LINEAR[codec], rate)
    if codec == "wav":
        return _WavDecoder()
    if codec == "opus":
        return _OpusDecoder()
    if codec == "ogg-opus":
        return _OggOpusDecoder()
    if codec in decodable():
        return _StreamDecoder(codec)
    raise HarnessFault(f"target.options.codec: {codec!r} is unknown. Use one of {', '.join(decodable())}")


_NOTHING: Final = np.zeros(0, np.int16)


class _LinearDecoder:
    __slots__ = ("_codec", "_rest", "rate")

    def __init__(self, codec: _Linear, rate: int) -> None:
        self._codec, self._rest, self.rate = codec, b"", rate

    def feed(self, data: bytes) -> Int16:
        data = self._rest + data
        whole = len(data) // self._codec.width * self._codec.width
        self._rest = data[whole:]
        return self._codec.decode(data[:whole])

    def finish(self) -> Int16:
        return _NOTHING  # half a sample is none


class _WavDecoder:
    """WAV as it streams in: the sizes in its header are believed only where they can be."""

    __slots__ = ("_bytes", "_header", "_left", "rate")

    def __init__(self) -> None:
        self._bytes, self._left, self.rate = b"", 0, 0
        self._header: WavHeader | None = None

    def feed(self, data: bytes) -> Int16:
        self._bytes += data
        if self._header is None:
            try:
                self._header = parse_header(self._bytes)
            except NotWav as error:
                raise BrokenAudio(f"no WAV: {error}") from None
            if self._header is None:
                return _NOTHING
            self.rate = self._header.rate
            self._bytes = self._bytes[self._header.data_at :]
            self._left = self._header.data_bytes
        return self._samples(self._header)

    def finish(self) -> Int16:
        if self._header is None and self._bytes:
            raise BrokenAudio(f"a WAV that ends inside its header, after {len(self._bytes)} bytes")
        return _NOTHING

    def _samples(self, header: WavHeader) -> Int16:
        there = len(self._bytes) if self._left < 0 else min(len(self._bytes), self._left)
        whole = there // header.frame_bytes * header.frame_bytes
        samples = mono(header, self._bytes[:whole])
        if self._left >= 0:
            self._left -= whole
            done = self._left < header.frame_bytes
            self._bytes = b"" if done else self._bytes[whole:]  # other chunks may follow the sound
        else:
            self._bytes = self._bytes[whole:]
        return np.clip(np.rint(samples * 32768), -32768, 32767).astype(np.int16)


class _OpusDecoder:
    __slots__ = ("_packets", "rate")

    def __init__(self) -> None:
        self._packets = PacketDecoder("opus")
        self.rate = OPUS_RATE

    def feed(self, data: bytes) -> Int16:
        return self._packets.packet(data) if data else _NOTHING

    def finish(self) -> Int16:
        return _NOTHING


class _OggOpusDecoder:
    """The first samples, the encoder's look-ahead, are thrown away, and so is what lies behind the position of the last
    page.
    """

    __slots__ = ("_demuxer", "_n", "_n_headers", "_packets", "_skip", "rate")

    def __init__(self) -> None:
        self._packets = PacketDecoder("opus")
        self._demuxer = Demuxer()
        self._n_headers = self._skip = self._n = 0
        self.rate = OPUS_RATE

    def feed(self, data: bytes) -> Int16:
        try:
            packets = self._demuxer.feed(data)
            parts = [self._decoded(packet) for packet in packets]
        except BrokenOgg as error:
            raise BrokenAudio(f"no Ogg: {error}") from None
        samples = np.concatenate([_NOTHING, *parts])
        before, self._n = self._n, self._n + len(samples)
        kept = samples[max(0, self._skip - before) :]
        over = self._n - self._demuxer.granule
        return kept[: max(0, len(kept) - over)] if self._demuxer.ended and over > 0 else kept

    def finish(self) -> Int16:
        return _NOTHING

    def _decoded(self, packet: bytes) -> Int16:
        if self._n_headers < 2:
            self._n_headers += 1
            if self._n_headers == 1:
                self._skip, _ = pre_skip_of(packet)
            return _NOTHING
        return self._packets.packet(packet)


class _StreamDecoder:
    """FLAC, MP3 and ADTS: the codec's own parser finds the frames; an ID3 tag before them is passed over."""

    __slots__ = ("_head", "_packets", "_past")

    def __init__(self, codec: str) -> None:
        self._packets = PacketDecoder(codec)
        self._head, self._past = b"", False

    @property
    def rate(self) -> int:
        return self._packets.rate

    def feed(self, data: bytes) -> Int16:
        if not self._past:
            self._head += data
            begin = 10 + _id3_bytes(self._head)
            if self._head[:3] == b"ID3"[: len(self._head)] and len(self._head) < begin:
                return _NOTHING
            self._past = True
            data = self._head[begin:] if self._head[:3] == b"ID3" else self._head
        return self._packets.parsed(data) if data else _NOTHING

    def finish(self) -> Int16:
        return self._packets.rest()


def _id3_bytes(head: bytes) -> int:
    """Bytes of an ID3v2 tag behind its ten of header: four times seven bits."""
    size = 0
    for byte in head[6:10]:
        size = size << 7 | byte & 127
    return size
