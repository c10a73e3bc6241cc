"""Distributions: exact quantiles from every value, and HdrHistogram counts as an interchange format.

The exact values are the source of truth of every verdict; a histogram is a view for merging and export.
This is the only module that imports the HdrHistogram package, and only to encode and decode: counts are
built here in numpy, because the package drops out-of-range values silently, returns 0 as the minimum after
merging an empty histogram, rounds percentile ranks to nearest, and takes 0.9 us a value.
"""

import base64
import binascii
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from plimsoll.slo.statistics.order import Ordered

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@lru_cache(maxsize=256, typed=True)  # asked for the same few, ten thousand times a verdict; 0.1 is no Fraction(0.1)
def exact(p: Fraction | str | float) -> Fraction:
    """A probability as a rational number: ``0.999`` and ``"0.999"`` are 999/1000, never its binary neighbour. Raises
    ValueError outside 0..1.
    """
    value = p if isinstance(p, Fraction) else Fraction(p if isinstance(p, str) else str(float(p)))
    if not 0 <= value <= 1:
        raise ValueError(f"{p}: a quantile lies in 0..1; write 0.99 for p99")
    return value


def quantile(sorted_values: Ordered, p: Fraction | str | float) -> float:
    """Nearest rank: the smallest value with at least p of all values at or below it, ``sorted[ceil(p n) - 1]``.
    ``sorted_values`` float64[n], ascending, +inf allowed, or what stands for it. Raises ValueError when it is empty.
    """
    return float(sorted_values[nearest(_filled(sorted_values), [p])[0]])


def nearest(n: int, shares: Iterable[Fraction | str | float]) -> list[int]:
    """Where the nearest rank of each share stands among n ascending values, at least one, counted from 0."""
    return [max(int(-(-(exact(p) * n) // 1)), 1) - 1 for p in shares]


def median(values: npt.NDArray[Any] | Sequence[float]) -> float:
    """numpy's median. Its own function loads ``numpy.ma`` to look for a NaN: 20 ms of every command that judges."""
    n = len(values)
    if n == 0 or np.isnan(values).any():
        return math.nan
    middle = np.partition(values, ((n - 1) // 2, n // 2))
    return (float(middle[(n - 1) // 2]) + float(middle[n // 2])) / 2


def quantile_loadgen(sorted_values: Ordered, p: Fraction | str | float) -> float:
    """MLPerf LoadGen's percentile, ``sorted[floor(p n)]``: one rank above nearest rank when p n is whole."""
    n = _filled(sorted_values)
    return float(sorted_values[min(int(exact(p) * n // 1), n - 1)])


def quantile_linear(sorted_values: Ordered, p: Fraction | str | float) -> float:
    """Linear interpolation at rank p (n - 1), as numpy, k6 and vLLM do; +inf as soon as an infinite value weighs."""
    n = _filled(sorted_values)
    place = exact(p) * (n - 1)
    low = int(place // 1)
    part = float(place - low)
    if part == 0.0:
        return float(sorted_values[low])
    below, above = float(sorted_values[low]), float(sorted_values[low + 1])
    return above if np.isinf(above) else below + (above - below) * part


def _filled(sorted_values: Ordered) -> int:
    n = len(sorted_values)
    if n == 0:
        raise ValueError("no values: an empty distribution has no quantiles")
    return n


#: What a processor's cache holds of one array, several times over.
BLOCK = 1 << 17


def ascending(times: IntArray) -> IntArray:
    """A sorted copy. Times of a run are nearly in order already, which takes a third of the time to sort."""
    found = np.array(times)
    far = len(found) - BLOCK // 2
    # What stands near its place needs little room to be merged there; quicksort needs none at all.
    near = far <= 0 or bool((found[-far:] >= np.maximum.accumulate(found)[:far]).all())
    found.sort(kind="stable" if near else "quicksort")
    return found


def at_most(values: IntArray, limits: FloatArray) -> IntArray:
    """int64[limits]: how many of the values are at or below each of a few limits; they need no order."""
    found = np.zeros(len(limits), np.int64)
    whole = np.floor(limits).astype(np.int64).tolist()
    for first in range(0, len(values), BLOCK):
        block = values[first : first + BLOCK]
        found += [np.count_nonzero(block <= limit) for limit in whole]
    return found


def u_errors(first: FloatArray, second: FloatArray, inflated: float = 1.0) -> float:
    """Mann-Whitney's U in standard errors, positive where values of ``first`` are the larger ones; ties count half.

    ``inflated``: by how much autocorrelation widens the variance. 0 where one of the two is empty.
    """
    n, m = len(first), len(second)
    if not n or not m:
        return 0.0
    ordered, sought = np.sort(second), np.sort(first)  # searched for in order, neighbours are found in the cache
    below = int(np.searchsorted(ordered, sought, "left").sum()) + int(np.searchsorted(ordered, sought, "right").sum())
    return (float(below) / 2 - n * m / 2) / math.sqrt(n * m * (n + m + 1) / 12 * inflated)


@dataclass(frozen=True, slots=True)
class HdrConfig:
    """Range and precision of a histogram; the default tells apart 1 ns to 1 h to 3 significant digits.

    Layout as HdrHistogram's: sub-buckets of equal width inside buckets that double. ``lowest`` >= 1,
    ``highest`` >= 2 ``lowest`` and below 2^62, ``digits`` 1..5; else ValueError.
    """

    lowest: int = 1
    highest: int = 3_600_000_000_000
    digits: int = 3

    def __post_init__(self) -> None:
        if not 1 <= self.lowest <= self.highest // 2 or self.highest >= 1 << 62 or not 1 <= self.digits <= 5:
            raise ValueError(f"{self}: wants 1 <= lowest, 2 lowest <= highest < 2^62 and 1 to 5 digits")

    @property
    def unit_magnitude(self) -> int:
        """log2 of the width of the narrowest bucket."""
        return self.lowest.bit_length() - 1

    @property
    def half_magnitude(self) -> int:
        """log2 of half the number of sub-buckets in a bucket."""
        return int(2 * 10**self.digits - 1).bit_length() - 1

    @property
    def sub_count(self) -> int:
        """Sub-buckets in a bucket: the smallest power of two that is at least 2 * 10^digits."""
        return 2 << self.half_magnitude

    @property
    def bucket_count(self) -> int:
        """Buckets needed to reach ``highest``."""
        count = 1
        while self.sub_count << (self.unit_magnitude + count - 1) <= self.highest:
            count += 1
        return count

    @property
    def counts_len(self) -> int:
        return (self.bucket_count + 1) * (self.sub_count // 2)

    def index(self, values: npt.ArrayLike) -> IntArray:
        """Index of the count that holds each value; values int64 in 0..highest."""
        v = np.asarray(values, np.int64)
        # A float64 holds the place of the highest bit and the bits after it side by side, as a count's index does.
        # Low bits decide nothing and are cleared where rounding to a float64 could carry them up.
        found = (np.where(v >> 53, v & ~1023, v) if v.max(initial=0) >> 53 else v).astype(np.float64).view(np.int64)
        found >>= 52 - self.half_magnitude
        found -= (1022 + self.half_magnitude + self.unit_magnitude) << self.half_magnitude
        narrow = v < self.sub_count << self.unit_magnitude
        if narrow.any():
            np.copyto(found, v >> self.unit_magnitude, where=narrow)
        return np.asarray(found, np.int64)

    def bounds(self, index: npt.ArrayLike) -> tuple[IntArray, IntArray]:
        """Lowest and highest value that share each count."""
        i = np.asarray(index, np.int64)
        bucket = np.maximum((i >> self.half_magnitude) - 1, 0)
        low = (i - (bucket << self.half_magnitude)) << (bucket + self.unit_magnitude)
        return low, low + (np.int64(1) << (bucket + self.unit_magnitude)) - 1


DEFAULT_HDR = HdrConfig()


def hdr_counts(values_ns: npt.ArrayLike, config: HdrConfig = DEFAULT_HDR) -> tuple[IntArray, int]:
    """Counts int64[counts_len] of the values, and how many had to be clamped into 0..highest (+inf is one of them)."""
    values = np.asarray(values_ns, np.float64 if np.asarray(values_ns).dtype.kind == "f" else np.int64)
    outside = (values < 0) | (values > config.highest)
    clamped = np.clip(values, 0, config.highest).astype(np.int64)
    counts = np.bincount(config.index(clamped), minlength=config.counts_len).astype(np.int64)
    return counts, int(np.count_nonzero(outside))


def merge(parts: Sequence[IntArray]) -> IntArray:
    """Counts of the union. All parts must have one configuration, else ValueError."""
    if not parts:
        raise ValueError("nothing to merge: give at least one array of counts")
    if len({len(part) for part in parts}) != 1:
        raise ValueError("histograms of different ranges do not merge; record them with one HdrConfig")
    return np.asarray(np.sum(np.stack(parts), axis=0), np.int64)


def hdr_max(counts: IntArray, config: HdrConfig = DEFAULT_HDR) -> int:
    """Highest value of the highest bucket in use; 0 when there is none."""
    used = np.flatnonzero(counts)
    return int(config.bounds(used[-1])[1]) if len(used) else 0


def encode(counts: IntArray, config: HdrConfig = DEFAULT_HDR) -> str:
    """V2 compressed HdrHistogram in base64 (``HISTFAAAA...``), readable by every HdrHistogram library."""
    from hdrh.histogram import HdrHistogram

    if len(counts) != config.counts_len or (len(counts) and int(counts.min()) < 0):
        raise ValueError(f"wants {config.counts_len} counts of at least 0; make them with hdr_counts")
    histogram = HdrHistogram(config.lowest, config.highest, config.digits)
    np.frombuffer(histogram.counts, np.uint64)[:] = counts.astype(np.uint64)
    histogram.total_count = int(counts.sum())
    # The encoder writes counts up to the one of max_value.
    histogram.max_value = hdr_max(counts, config)
    encoded: bytes = histogram.encode()
    return encoded.decode("ascii")


def decode(text: str | bytes) -> tuple[IntArray, HdrConfig]:
    """Counts and configuration of a V2 compressed, base64 HdrHistogram. Raises ValueError when it is not one."""
    from hdrh.codec import HdrCookieException, HdrHistogramSettingsException, HdrLengthException
    from hdrh.histogram import HdrHistogram

    broken = (HdrCookieException, HdrHistogramSettingsException, HdrLengthException)
    try:
        raw = base64.b64decode(text, validate=True)
        histogram: Any = HdrHistogram.decode(base64.b64encode(raw))
    except (*broken, binascii.Error, zlib.error, ValueError, TypeError, IndexError, ArithmeticError) as error:
        raise ValueError(f"not a V2 compressed HdrHistogram: {error or type(error).__name__}") from error
    low, high = histogram.lowest_trackable_value, histogram.highest_trackable_value
    config = HdrConfig(int(low), int(high), int(histogram.significant_figures))
    return np.frombuffer(histogram.counts, np.uint64).astype(np.int64), config


# -- interval logs -----------------------------------------------------------------------------------------------------

# HdrHistogram interval logs (.hlog): one histogram per interval of a run, as other tools read them. Text, format 1.3 of
# the Java HistogramLogWriter: comment lines with start and base time, a legend, then
# ``[Tag=name,]start_s,length_s,max,base64``. Written here, because the Python package's writer raises on the start
# time, floor-divides the maximum and writes no tag. Nothing here measures or opens files.

_LEGEND = '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'


@dataclass(frozen=True, slots=True)
class Interval:
    """Counts of the values recorded in ``start_s``..``start_s + length_s``, seconds after the log's start."""

    start_s: float
    length_s: float
    counts: IntArray
    config: HdrConfig = DEFAULT_HDR
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """A whole interval log; ``start_epoch_s`` is the run's start in seconds since 1970."""

    start_epoch_s: float
    intervals: tuple[Interval, ...]


def write(log: Log, unit_ratio: float = 1e6) -> str:
    """The log as text; ``unit_ratio`` scales the printed maximum (1e6: nanoseconds to milliseconds).

    Raises ValueError for a tag with a comma or white space, or an interval before the start.
    """
    return "".join(lines(log.start_epoch_s, log.intervals, unit_ratio))


def lines(start_epoch_s: float, intervals: Iterable[Interval], unit_ratio: float = 1e6) -> Iterator[str]:
    """What ``write`` writes, a line at a time: a long run's counts need not all be in memory at once."""
    started = datetime.fromtimestamp(start_epoch_s, UTC).isoformat(sep=" ", timespec="milliseconds")
    yield "#[Histogram log format version 1.3]\n"
    yield f"#[StartTime: {start_epoch_s:.3f} (seconds since epoch), {started}]\n"
    yield f"#[BaseTime: {start_epoch_s:.3f} (seconds since epoch)]\n"
    yield _LEGEND + "\n"
    for interval in intervals:
        yield _line(interval, unit_ratio) + "\n"


def _line(interval: Interval, unit_ratio: float) -> str:
    if interval.tag is not None and not re.fullmatch(r"[^,\s]+", interval.tag):
        raise ValueError(f"tag {interval.tag!r}: no commas or white space; use letters, digits and _")
    if interval.start_s < 0 or interval.length_s < 0:
        raise ValueError(f"interval at {interval.start_s} s: starts before the log; give seconds after its start")
    tag = f"Tag={interval.tag}," if interval.tag is not None else ""
    top = hdr_max(interval.counts, interval.config) / unit_ratio
    blob = encode(interval.counts, interval.config)
    return f"{tag}{interval.start_s:.3f},{interval.length_s:.3f},{top:.3f},{blob}"
