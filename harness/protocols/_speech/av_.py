"""Opus, FLAC, MP3 and AAC by FFmpeg's codecs: the only importer of ``av``, which comes with ``pip install plimsoll-slo[speech]``.

Encoding happens before the timed phase and decoding after it. It plays nothing and opens no file.
"""

from __future__ import annotations

import io
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from plimsoll.harness.errors import HarnessFault

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
    """One packet for each ``frame`` samples of ``pcm``, the last filled up with silence, and one more for the encoder's look-ahead.

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
