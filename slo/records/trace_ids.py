"""The W3C trace context of every request, as a function of the run's id and the request: nothing of it is stored while
the run goes on.

``traceparent: 00-<trace id>-<span id>-<flags>``. A request has one trace id; each attempt of it has a span id of its
own. The sampled flag follows the trace id as OpenTelemetry's consistent sampling has it: a request is sampled if the
number in its last 56 bits is at least (1 - share) * 2^56. ``harness/generator/engine/pool.c`` computes the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plimsoll.slo.records.records import Phase, Records

HEADER = "traceparent"
_FULL, _RANDOM = (1 << 64) - 1, (1 << 56) - 1
#: Multipliers of the last steps of SplitMix64 (Steele, Lea and Flood, 2014; Stafford's variant 13).
_M1, _M2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
#: What numbers of queries are apart before they are mixed.
_GOLDEN = 0x9E3779B97F4A7C15

Words = npt.NDArray[np.uint64]


def _mixed(z: int) -> int:
    """A permutation of the 64-bit numbers, in which each bit in changes half of the bits out."""
    z = ((z ^ (z >> 30)) * _M1) & _FULL
    z = ((z ^ (z >> 27)) * _M2) & _FULL
    return z ^ (z >> 31)


def _mixed_all(z: Words) -> Words:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_M1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_M2)
    return z ^ (z >> np.uint64(31))


@dataclass(frozen=True, slots=True)
class TraceIds:
    """Those of one run. ``high``, ``low``: its key; ``least``: what the last 56 bits of a sampled trace id are at
    least.
    """

    high: int
    low: int
    least: int

    @classmethod
    def of(cls, run_id: str, sampled: float, first: int = 0) -> TraceIds:
        """``sampled``: the share of requests whose flag is set; ``first``: what ids of queries begin at on the wire."""
        key = hashlib.blake2b(run_id.encode(), digest_size=16, person=b"plimsoll trace").digest()
        high = (int.from_bytes(key[:8]) + 2 * first * _GOLDEN) & _FULL
        return cls(high, int.from_bytes(key[8:]), round((1 - sampled) * (_RANDOM + 1)))

    @classmethod
    def told(cls, manifest: Mapping[str, Any]) -> TraceIds | None:
        """Of the run or class that a manifest.json is of; None: its requests carried no trace context."""
        sampled = manifest.get("traceparent")
        if not isinstance(sampled, float):
            return None
        return cls.of(str(manifest.get("run_id", "")), sampled, int(manifest.get("first_query_id", 0)))

    def header(self, number: int, sample_ix: int, warmup: bool) -> bytes:
        """The value of the header of a request's first attempt; ``number``: of its query on the wire."""
        high = _mixed((self.high + (2 * number + warmup) * _GOLDEN + sample_ix * _M1) & _FULL)
        low = _mixed(high ^ self.low)
        return b"00-%016x%016x-%016x-0%d" % (high, low, high ^ low, (low & _RANDOM) >= self.least)

    def words(self, number: Words, sample_ix: Words, warmup: Words) -> tuple[Words, Words]:
        """Both halves of many trace ids: see ``header``."""
        query = (number * np.uint64(2) + warmup) * np.uint64(_GOLDEN)
        high = _mixed_all(np.uint64(self.high) + query + sample_ix * np.uint64(_M1))
        return high, _mixed_all(high ^ np.uint64(self.low))

    def halves(self, records: Records) -> tuple[Words, Words]:
        """Those of every row's trace id."""
        number, sample = (records[name].astype(np.uint64) for name in ("query_id", "sample_ix"))
        return self.words(number, sample, (records["phase"] == Phase.WARMUP).astype(np.uint64))

    def letters(self, records: Records) -> npt.NDArray[np.uint8]:
        """uint8[n, 32]: the trace id of every row in hexadecimal."""
        octets = np.stack(self.halves(records), axis=1).astype(">u8").view(np.uint8)
        return _HEX[octets].reshape(len(records), 32)

    def texts(self, records: Records) -> list[str]:
        """The trace id of every row."""
        return [bytes(row).decode() for row in self.letters(records)]

    def column(self, records: Records) -> Any:
        """The same as an Arrow array of strings."""
        import pyarrow as pa

        n = len(records)
        ends = np.arange(n + 1, dtype=np.int32) * 32
        return pa.StringArray.from_buffers(n, pa.py_buffer(ends), pa.py_buffer(self.letters(records)))

    def sampled(self, trace_id: str) -> bool:
        """The servers on its way were asked to record it."""
        return (int(trace_id, 16) & _RANDOM) >= self.least


def again(header: bytes, attempt: int) -> bytes:
    """The value for a further attempt (from 1) of the request that had ``header``: another span of the same trace."""
    if not header:
        return header
    span = int(header[36:52], 16) + attempt * _GOLDEN & _FULL
    return header[:36] + b"%016x" % span + header[52:]


def address_error(template: Any) -> str | None:
    """What is wrong with an address of traces."""
    if template == "" or (
        isinstance(template, str) and template.startswith(("http://", "https://")) and "{trace_id}" in template
    ):
        return None
    return f"{template!r:.80} is no address of a trace. Write for example http://jaeger:16686/trace/{{trace_id}}"


_HEX = np.frombuffer("".join(f"{octet:02x}" for octet in range(256)).encode(), np.uint8).reshape(256, 2)
