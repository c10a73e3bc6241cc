"""Exact quantiles, and histograms against published layouts and the HdrHistogram package itself."""

from __future__ import annotations

import base64
import zlib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from plimsoll.slo.statistics import distribution
from plimsoll.slo.statistics import distribution as dist
from plimsoll.slo.statistics.distribution import HdrConfig
from tests import hdr_log
from tests.exact_summary import summary
from tests.histogram_rank import hdr_quantile

US = HdrConfig(1, 3_600_000_000, 3)


def test_conventions_differ_as_published() -> None:
    hundred, thousand = np.arange(1.0, 101), np.arange(1.0, 1001)
    assert dist.quantile(hundred, "0.99") == 99
    assert dist.quantile_loadgen(hundred, "0.99") == 100
    assert dist.quantile_linear(hundred, "0.99") == pytest.approx(99.01)
    assert (dist.quantile(thousand, 0.99), dist.quantile(thousand, 0.999)) == (990, 999)
    assert (dist.quantile_loadgen(thousand, 0.99), dist.quantile_loadgen(thousand, 0.999)) == (991, 1000)
    assert dist.quantile_linear(thousand, 0.999) == pytest.approx(999.001)


def test_rank_arithmetic_has_no_float_hazard() -> None:
    # In binary, 0.999 * 1000 is 999.0000000000001 or 998.9999999999999 depending on the form; the rank is 999.
    values = np.arange(1.0, 1001)
    assert {dist.quantile(values, p) for p in (0.999, "0.999", Fraction(999, 1000), np.float64(0.999))} == {999.0}
    for n in (10, 100, 1000, 10_000):
        for percent in range(1, 100):
            expected = -(-percent * n // 100)
            assert dist.quantile(np.arange(1.0, n + 1), percent / 100) == expected


def test_an_infinite_value_is_never_interpolated_into_a_number() -> None:
    values = np.array([1.0, 2.0, np.inf, np.inf])
    assert dist.quantile_linear(values, "0.5") == np.inf
    assert dist.quantile_linear(values, "1") == np.inf
    assert dist.quantile_linear(values, Fraction(1, 3)) == 2.0


def test_empty_data_have_no_quantile() -> None:
    for convention in (dist.quantile, dist.quantile_loadgen, dist.quantile_linear):
        with pytest.raises(ValueError, match="no values"):
            convention(np.empty(0), "0.5")
    assert summary(np.empty(0)).n == 0
    assert np.isnan(summary(np.empty(0)).p99)


@pytest.mark.parametrize("p", [-0.1, 1.5, "99"])
def test_a_quantile_outside_0_to_1_is_refused(p: float | str) -> None:
    with pytest.raises(ValueError, match=r"0\.\.1"):
        dist.quantile(np.arange(3.0), p)


def test_summary_carries_infinity() -> None:
    found = summary(np.array([3.0, 1.0, np.inf, 2.0]))
    assert (found.min, found.p50, found.max, found.mean, found.n) == (1.0, 2.0, np.inf, np.inf, 4)


@pytest.mark.parametrize(
    ("config", "unit", "buckets", "length"),
    [
        ((1, 3_600_000_000, 3), 0, 22, 23_552), ((1, 3_600_000_000, 2), 0, 25, 3_328),
        ((1, 3_600_000_000, 4), 0, 18, 311_296), ((1, 3_600_000_000, 5), 0, 15, 2_097_152),
        ((1, 3_600_000_000_000, 3), 0, 32, 33_792), ((1000, 3_600_000_000_000, 3), 9, 23, 24_576),
        ((1, 60_000_000, 3), 0, 16, 17_408),
    ],
)  # fmt: skip
def test_layout_is_hdrhistograms(config: tuple[int, int, int], unit: int, buckets: int, length: int) -> None:
    found = HdrConfig(*config)
    assert (found.unit_magnitude, found.bucket_count, found.counts_len) == (unit, buckets, length)
    theirs = HdrHistogram(*config)
    assert theirs.counts_len == length


def test_indices_and_bounds_are_the_published_ones() -> None:
    vectors = {
        0: (0, 0, 0), 1: (1, 1, 1), 1000: (1000, 1000, 1000), 2047: (2047, 2047, 2047), 2048: (2048, 2048, 2049),
        2050: (2049, 2050, 2051), 3000: (2524, 3000, 3001), 4095: (3071, 4094, 4095), 4096: (3072, 4096, 4099),
        10_000: (4322, 10_000, 10_007), 100_000: (7706, 99_968, 100_031), 1_000_000: (11_169, 999_936, 1_000_447),
        123_456_789: (18_267, 123_404_288, 123_469_823), 3_600_000_000: (23_220, 3_598_712_832, 3_600_809_983),
    }  # fmt: skip
    index = US.index(list(vectors))
    low, high = US.bounds(index)
    assert list(zip(index.tolist(), low.tolist(), high.tolist(), strict=True)) == list(vectors.values())


def test_bit_length_is_exact_where_float64_rounds_up() -> None:
    config = HdrConfig(1, 1 << 60, 3)
    value = (1 << 58) - 1
    low, high = config.bounds(config.index(value))
    assert int(low) <= value <= int(high)


def test_encoding_is_the_published_bytes() -> None:
    counts, clamped = dist.hdr_counts([1, 2, 2, 1_000_000], US)
    assert clamped == 0
    text = dist.encode(counts, US)
    assert text.startswith("HISTFAAAA")
    raw = base64.b64decode(text)
    assert raw[:4].hex() == "1c849314"
    assert zlib.decompress(raw[8:]).hex() == (
        "1c849313" "00000007" "00000000" "00000003" "0000000000000001" "00000000d693a400" "3ff0000000000000"
        "010204bbae0102"
    )  # fmt: skip


def test_the_package_reads_our_encoding_and_we_read_theirs() -> None:
    values = np.random.default_rng(1).lognormal(17, 2, 500).astype(np.int64)
    counts, _ = dist.hdr_counts(values)
    theirs = HdrHistogram.decode(dist.encode(counts))
    assert theirs.get_total_count() == 500
    assert theirs.get_value_at_percentile(100) == dist.hdr_max(counts)
    other = HdrHistogram(1, 3_600_000_000_000, 3)
    for value in values.tolist():
        assert other.record_value(value)
    back, config = dist.decode(other.encode())
    assert config == dist.DEFAULT_HDR
    assert np.array_equal(back, counts)


def test_nothing_is_dropped_where_the_package_drops_silently() -> None:
    assert HdrHistogram(1, 1000, 3).record_value(10_000_000) is False  # the trap: nobody looks at this False
    counts, clamped = dist.hdr_counts(np.array([5.0, 1e9, np.inf, -3.0]), HdrConfig(1, 1000, 3))
    assert (int(counts.sum()), clamped) == (4, 3)


def test_merging_an_empty_histogram_changes_nothing() -> None:
    theirs, empty = HdrHistogram(1, 1000, 3), HdrHistogram(1, 1000, 3)
    theirs.record_value(500)
    theirs.add(empty)
    assert theirs.get_min_value() == 0  # the trap
    config = HdrConfig(1, 1000, 3)
    counts, _ = dist.hdr_counts([500], config)
    merged = dist.merge([counts, np.zeros_like(counts)])
    assert np.array_equal(merged, counts)
    assert hdr_quantile(merged, 0, config) == 500


def test_percentiles_of_histograms_never_under_report_a_rank() -> None:
    theirs = HdrHistogram(1, 1000, 3)
    for value in range(1, 11):
        theirs.record_value(value)
    assert theirs.get_value_at_percentile(94) == 9  # the trap: only 90 % of the values are at or below 9
    config = HdrConfig(1, 1000, 3)
    counts, _ = dist.hdr_counts(np.arange(1, 11), config)
    assert hdr_quantile(counts, "0.94", config) == 10


def test_histograms_of_different_ranges_do_not_merge() -> None:
    one, _ = dist.hdr_counts([5], US)
    other, _ = dist.hdr_counts([5])
    with pytest.raises(ValueError, match="different ranges"):
        dist.merge([one, other])
    with pytest.raises(ValueError, match="nothing to merge"):
        dist.merge([])


@pytest.mark.parametrize(
    "text", ["", "HISTF", "AAAA", "not base64!", base64.b64encode(b"\x1c\x84\x93\x14" + bytes(40)).decode()]
)
def test_garbage_is_refused_with_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="not a V2 compressed HdrHistogram"):
        dist.decode(text)


def log_of(*starts: float) -> distribution.Log:
    counts = [dist.hdr_counts([1_000_000 * (i + 1), 2_769_000])[0] for i in range(len(starts))]
    return distribution.Log(
        1_700_000_000.25,
        tuple(distribution.Interval(s, 1.0, c, tag="latency") for s, c in zip(starts, counts, strict=True)),
    )


def test_a_log_reads_back_as_it_was_written() -> None:
    log = log_of(0.0, 1.0, 2.5)
    back = hdr_log.read(distribution.write(log))
    assert back.start_epoch_s == log.start_epoch_s
    assert [i.start_s for i in back.intervals] == pytest.approx([0.0, 1.0, 2.5])
    assert [(i.length_s, i.tag, i.config) for i in back.intervals] == [(1.0, "latency", dist.DEFAULT_HDR)] * 3
    assert all(np.array_equal(a.counts, b.counts) for a, b in zip(back.intervals, log.intervals, strict=True))


def test_the_packages_own_reader_reads_our_log(tmp_path: Path) -> None:
    path = tmp_path / "x.hlog"
    path.write_text(distribution.write(log_of(0.0, 1.0)))
    reader = HistogramLogReader(str(path), HdrHistogram(1, 3_600_000_000_000, 3))
    try:
        first, second = reader.get_next_interval_histogram(), reader.get_next_interval_histogram()
        assert reader.get_next_interval_histogram() is None
    finally:
        reader.close()
    assert (first.get_total_count(), first.get_tag()) == (2, "latency")
    assert second.get_start_time_stamp() == pytest.approx(1_700_000_001_250.0)


def test_the_maximum_is_the_top_of_its_bucket_and_not_floor_divided() -> None:
    line = distribution.write(log_of(0.0)).splitlines()[-1]
    assert line.startswith("Tag=latency,0.000,1.000,2.771,HISTFAAAA")


def test_a_log_without_base_time_follows_the_java_rule() -> None:
    blob = dist.encode(dist.hdr_counts([7])[0])
    head = "#[StartTime: 1700000000.000 (seconds since epoch), x]\n"
    assert hdr_log.read(f"{head}5.0,1.0,0.0,{blob}").intervals[0].start_s == pytest.approx(5.0)
    assert hdr_log.read(f"{head}1700000005.0,1.0,0.0,{blob}").intervals[0].start_s == pytest.approx(5.0)


def test_a_broken_log_is_refused_by_line() -> None:
    with pytest.raises(ValueError, match="line 2: not an interval"):
        hdr_log.read("# comment\nnonsense\n")
    with pytest.raises(ValueError, match="line 1: not a V2"):
        hdr_log.read("0.0,1.0,2.0,HISTFAAAA")
    with pytest.raises(ValueError, match="tag"):
        distribution.write(
            distribution.Log(0.0, (distribution.Interval(0.0, 1.0, dist.hdr_counts([1])[0], tag="a,b"),))
        )


@pytest.mark.parametrize("config", [HdrConfig(), HdrConfig(1000, 1 << 40, 2), HdrConfig(1, (1 << 62) - 1, 5)])
def test_the_leading_bits_of_a_float_are_the_index_of_a_count(config: HdrConfig) -> None:
    """Python's whole numbers know how many bits they have, whatever a float64 rounds."""
    near = np.array([1 << k for k in range(62)])
    values = np.unique(np.concatenate([near - 1, near, near + 1, np.arange(5000), near // 3 * 2]))
    values = values[values <= config.highest]

    def index(value: int) -> int:
        bits = (value | ((config.sub_count - 1) << config.unit_magnitude)).bit_length()
        bucket = bits - config.unit_magnitude - config.half_magnitude - 1
        return (bucket << config.half_magnitude) + (value >> (bucket + config.unit_magnitude))

    assert config.index(values).tolist() == [index(value) for value in values.tolist()]


@pytest.mark.parametrize("far", [0, 100, 10**9])
def test_times_are_sorted_and_counted_however_far_they_are_from_their_places(
    far: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dist, "BLOCK", 64)
    times = np.arange(1000) * 10 + np.random.default_rng(4).integers(0, far + 1, 1000)
    given = times.copy()
    assert dist.ascending(times).tolist() == sorted(times.tolist())
    assert times.tolist() == given.tolist()
    limits = np.array([-5.0, 0.0, 77.5, 5000.0, float(times.max()), np.nextafter(float(times[500]), 0)])
    assert dist.at_most(times, limits).tolist() == [int((times <= limit).sum()) for limit in limits]
    assert dist.ascending(times[:0]).tolist() == []
