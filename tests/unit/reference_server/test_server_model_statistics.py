"""Statistics of tensor requests are sums of what the stages say, by Triton's names, and failures are counted apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reference_server.seams.truth import ModelStatistics, Statistics
from plimsoll.reference_server.values.durations import Stages

STAGES = ("queue", "preprocess", "preprocess.resize", "prefill", "decode", "inference", "postprocess")


@given(st.lists(st.dictionaries(st.sampled_from(STAGES), st.integers(0, 10**12)), max_size=5))
def test_totals_are_the_sums_of_the_stages_without_their_parts(requests: list[dict[str, int]]) -> None:
    kept = ModelStatistics()
    for spans in requests:
        kept.note(Stages(spans), sum(spans.values()), n_samples=2, now_ms=7)
    totals = kept.totals()
    named = {
        "queue": ["queue"],
        "compute_input": ["preprocess"],
        "compute_infer": ["prefill", "decode", "inference"],
        "compute_output": ["postprocess"],
    }
    for name, stages in named.items():
        assert totals[name].ns == sum(spans.get(stage, 0) for spans in requests for stage in stages)
        assert totals[name].count == len(requests)
    assert totals["success"].ns == sum(sum(spans.values()) for spans in requests)
    assert (kept.n_samples, totals["fail"].count) == (2 * len(requests), 0)


def test_a_failure_adds_nothing_to_the_stages() -> None:
    kept = Statistics().of("m")
    kept.note_failure(5, now_ms=9)
    row = kept.as_json("m", 0)
    assert row["inference_stats"]["fail"] == {"count": 1, "ns": 5}
    assert (row["inference_stats"]["success"]["count"], row["inference_stats"]["queue"]["count"]) == (0, 0)
    assert (row["inference_count"], row["last_inference"]) == (0, 9)
