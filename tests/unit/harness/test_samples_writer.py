"""What a server says is written as it comes: bounded in series, and what a full disk took no more is counted."""

from __future__ import annotations

import resource
from pathlib import Path
from types import SimpleNamespace

import pytest

from plimsoll.harness.scraping import samples_writer
from plimsoll.harness.scraping.samples_writer import Writer
from plimsoll.harness.scraping.sources import Sample
from plimsoll.harness.sealing.samples_file import FILE, SAMPLES, server_of
from plimsoll.reports.sections.server import server_part, server_warnings
from plimsoll.slo.records.records import from_columns
from plimsoll.slo.server.served import Served
from plimsoll.slo.server.server_side import server_side

S = 1_000_000_000
QUEUE = ("vllm:num_requests_waiting", "")


def sample(at: int, *others: str) -> Sample:
    values = {QUEUE: float(at)} | {(other, ""): 1.0 for other in others}
    return Sample(at * S, at * S + 1, at * S + 2, 100, values)


def warned(found: Served) -> list[str]:
    rows = from_columns(0)
    run = SimpleNamespace(judged=SimpleNamespace(server=server_side(found, rows)), records=rows)
    return server_warnings(server_part(run))  # type: ignore[arg-type]


def read(path: Path) -> Served:
    found, fault = server_of(path, {"t0_monotonic_ns": 0})
    assert fault is None
    assert found is not None
    return found


def test_a_page_that_invents_series_grows_to_a_bound_and_loses_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(samples_writer.MOST, False, 25)
    writer = Writer(str(tmp_path / SAMPLES))
    writer.source(0, "a", "http://a/metrics", 1.0)
    writer.source(1, "b", "http://b/metrics", 1.0)
    for at in range(10):
        writer.sample(0, sample(at, *(f"made_up_{at}_{number}" for number in range(10))), 1.0)
        writer.sample(1, sample(at, "always"), 1.0)
    writer.close()
    assert len(writer._series) == 25 + 1 + 2
    found = read(tmp_path)
    assert [(one.source, one.values.tolist()) for one in found.tracks] == [(name, [*range(10)]) for name in "ab"]
    assert {name: one.origin.left_out for name, one in found.sources.items()} == {"a": 10, "b": 0}
    (said,) = warned(found)
    assert said.startswith("a shows new series again and again: up to 10 of a sample")


def test_samples_that_a_full_disk_took_no_more_are_counted(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path / SAMPLES))
    writer.source(0, "a", "http://a/metrics", 1.0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for at in range(10):
        if at == 4:  # in the midst of a record
            resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / SAMPLES).stat().st_size + 50, limits[1]))
        try:
            writer.sample(0, sample(at), 1.0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    writer.gap(0, 10 * S, 11 * S, "no answer")
    writer.close()
    found = read(tmp_path)
    assert (tmp_path / FILE).is_file()
    origin = found.sources["a"].origin
    assert [one.values.tolist() for one in found.tracks] == [[0, 1, 2, 3]]
    assert origin.unwritten == 7
    assert [(gap.start_ns, gap.end_ns, gap.count) for gap in origin.gaps] == [(4 * S, 11 * S, 7)]
    (said,) = warned(found)
    assert said.startswith("a: 7 of its samples could not be written: the disk was full")
