"""The variants of other tools, as data: one entry a variant, with its rules and where they are written.

``read`` sources were read in the tool's own repository in 2026-11; a later version may differ. ``unverified`` says what was
taken from memory or papers. Nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Percentile = Literal["nearest", "linear", "lower", "rounded", "loadgen", "weighted", "value"]
Unit = Literal["ns", "per_s", "1", "ratio"]


@dataclass(frozen=True, slots=True)
class Peer:
    """One number of one tool. ``start``: where its clock starts. ``percentile``: its rule (``value``: it is one number).
    ``one_token``: what an answer of one token is. ``differs``: what records can't reproduce. ``unverified``: what of this
    was not read in the source. ``failed``: what becomes of failed requests.
    """

    name: str
    unit: Unit
    start: str
    formula: str
    percentile: Percentile
    sample: str
    one_token: str
    source: str
    differs: str = ""
    unverified: str = ""
    failed: str = "failed requests left out"

    @property
    def definition(self) -> str:
        """All of it in one line."""
        rule = {
            "linear": "percentiles interpolated",
            "lower": "percentiles rounded down",
            "rounded": "percentiles at round((n - 1) p), a half to even",
            "loadgen": "percentiles at floor(p n)",
            "weighted": "percentiles by weight of tokens",
            "nearest": "nearest-rank percentiles",
            "value": "one number",
        }[self.percentile]
        parts = [self.formula, rule, self.failed]
        parts += [f"one token: {self.one_token}"] if self.one_token else []
        parts += [f"here {self.differs}"] if self.differs else []
        parts += [f"unverified: {self.unverified}"] if self.unverified else []
        return "; ".join(parts)


_ROLE = "from the first chunk with output; vLLM also takes a role-only chunk for the first token"
_FINISH = "to the last chunk with output; vLLM ends at the last chunk with choices, the finish chunk too"
_NO_CONTENT = "0 for a success without content"
_OWN_COUNT = "with the server's count; the tool counts with a tokenizer"
_VLLM = "vllm/benchmarks/serve.py calculate_metrics, lib/endpoint_request_func.py"
_SGLANG = "sglang bench_serving, OpenAI chat back end"
_GUIDELLM = "guidellm schemas/request_stats.py, statistics.py"
_AIPERF = "aiperf 0.13 metrics/types"
_AIPERF_DERIVED = "aiperf 0.13 metrics/derived_latency.py"
_INFINITE = "each failed request is +inf; none of these where nothing failed"
_GENAI = "genai-perf llm_profile_data_parser.py, statistics.py"
_LOADGEN = "mlcommons/inference loadgen logging.cc, results.cc"
_ENDPOINTS = "mlcommons/endpoints metrics_table.py"
_LLMPERF = "llmperf token_benchmark_ray.py, openai_chat_completions_client.py"
_ETALON = "etalon/metrics/metric_utils.py"
_LINEAR = "the percentile rule"

_ENTRIES = (
    Peer("vllm.ttft", "ns", "sent", "first chunk - sent", "linear", "first - sent", "", _VLLM, _ROLE),
    Peer(
        "vllm.tpot", "ns", "first chunk", "(latency - ttft) / (tokens - 1)", "linear", "last, per later token",
        "left out (0 in goodput)", _VLLM, _FINISH,
    ),
    Peer("vllm.itl", "ns", "gap", "gaps between chunks, pooled", "linear", "gaps", "no gap", _VLLM, _FINISH),
    Peer("vllm.e2el", "ns", "sent", "last chunk - sent", "linear", "last - sent", "", _VLLM, _FINISH),
    Peer("sglang.ttft", "ns", "sent", f"first content - sent, {_NO_CONTENT}", "linear", "first - sent or 0", "", _SGLANG),
    Peer(
        "sglang.tpot", "ns", "first content", "(end of stream - first content) / (tokens - 1)", "linear",
        "done, per later token", "left out", _SGLANG, "with the server's count; without usage SGLang takes the length asked for",
    ),
    Peer(
        "sglang.itl", "ns", "gap", "gaps between content chunks, pooled", "linear", "gaps", "no gap", _SGLANG,
        "as its OpenAI back end does; the native one divides a gap by the tokens that came with it",
    ),
    Peer("sglang.e2el", "ns", "sent", "end of stream - sent", "linear", "done - sent", "", _SGLANG),
    Peer("guidellm.ttft", "ns", "sent", f"first iteration - sent, {_NO_CONTENT}", "nearest", "first - sent or 0", "", _GUIDELLM),
    Peer(
        "guidellm.tpot", "ns", "sent", "(last token - sent) / tokens, weighted by tokens: the first token is in it", "weighted",
        "per token, by tokens", "its TTFT", _GUIDELLM,
    ),
    Peer(
        "guidellm.itl", "ns", "first token", "(last token - first token) / (tokens - 1), weighted by tokens - 1", "weighted",
        "last, per later token, by tokens", "left out", _GUIDELLM,
    ),
    Peer("guidellm.request_latency", "ns", "sent", "end - sent", "nearest", "done - sent", "", _GUIDELLM),
    Peer("aiperf.ttft", "ns", "sent", "first content - sent", "linear", "first - sent", "", _AIPERF),
    Peer(
        "aiperf.itl", "ns", "first content", "(last content - first content) / (tokens - 1), a mean per request", "linear",
        "last, per later token", "left out", _AIPERF, _OWN_COUNT,
    ),
    Peer(
        "aiperf.icl", "ns", "gap", "gaps between content chunks, pooled", "linear", "gaps", "no gap", _AIPERF,
        "exact; the tool takes percentiles from a t-digest",
    ),
    Peer("aiperf.request_latency", "ns", "sent", "last content - sent", "linear", "last - sent", "", _AIPERF),
    Peer(
        "aiperf.effective_latency", "ns", "due", "end of stream - when the request was let go", "linear", "done - due", "",
        _AIPERF_DERIVED, "from the due time; the tool starts when its credit is issued",
    ),
    Peer(
        "aiperf.adj_ttft", "ns", "sent", "first content - sent", "rounded", "first - sent", "", _AIPERF_DERIVED,
        failed=_INFINITE,
    ),
    Peer(
        "aiperf.adj_itl", "ns", "first content", "(last content - first content) / (tokens - 1), a mean per request",
        "rounded", "last, per later token", "left out", _AIPERF_DERIVED, _OWN_COUNT, failed=_INFINITE,
    ),
    Peer(
        "aiperf.adj_request_latency", "ns", "sent", "last content - sent", "rounded", "last - sent", "", _AIPERF_DERIVED,
        failed=_INFINITE,
    ),
    Peer("genai-perf.ttft", "ns", "sent", "first content - sent", "linear", "first - sent", "", _GENAI),
    Peer(
        "genai-perf.itl", "ns", "first content", "(last content - first content) / (tokens - 1), rounded, a mean per request",
        "linear", "last, per later token, rounded", "left out", _GENAI, _OWN_COUNT,
    ),
    Peer("genai-perf.request_latency", "ns", "sent", "last content - sent", "linear", "last - sent", "", _GENAI),
    Peer("llmperf.ttft", "ns", "sent", f"first content - sent, {_NO_CONTENT}", "linear", "first - sent or 0", "", _LLMPERF),
    Peer(
        "llmperf.inter_token_latency", "ns", "sent", "(last content - sent) / tokens: the first token is in it", "linear",
        "per token", "its TTFT", _LLMPERF, _OWN_COUNT,
    ),
    Peer("llmperf.e2e", "ns", "sent", "end of stream - sent", "linear", "done - sent", "", _LLMPERF),
    Peer("loadgen.ttft", "ns", "due", "first token - scheduled", "loadgen", "first - due", "", _LOADGEN),
    Peer(
        "loadgen.tpot", "ns", "first token", "(complete - first token) / (tokens - 1) in whole ns", "loadgen", "loadgen",
        "negative: at most one token counts as none", _LOADGEN,
    ),
    Peer("loadgen.latency", "ns", "due", "complete - scheduled", "loadgen", "done - due", "", _LOADGEN),
    Peer("endpoints.ttft", "ns", "sent", "first fragment - issued", "lower", "first - sent", "", _ENDPOINTS),
    Peer(
        "endpoints.tpot", "ns", "first chunk", "(complete - first chunk) / tokens after the first chunk", "lower",
        "after the first chunk", "left out", _ENDPOINTS,
        "with the server's count, spread evenly over the chunks; the tool counts the text after the first chunk",
    ),
    Peer(
        "endpoints.tps_per_user", "per_s", "first chunk", "1 / p90 of endpoints.tpot", "value", "", "left out",
        "MLPerf Endpoints rules, draft 1.0",
    ),
    Peer(
        "etalon.fluidity", "1", "sent", "1 - missed deadlines / deadlines, a long wait misses several", "linear", "fluidity",
        "", _ETALON, "", "that a chunk is taken as one token",
    ),
    Peer(
        "etalon.fluidity_docs", "1", "sent", "tokens on time / tokens", "linear", "fluidity", "", "Etalon's documentation", "",
        "that a chunk is taken as one token",
    ),
    Peer(
        "etalon.fluid_token_rate", "per_s", "first token",
        "1 / p99 of the shortest deadline between tokens of which at most a tenth is missed", "value", "", "left out", _ETALON,
        "found to a microsecond, on an even pick of the requests of a long run", "that a chunk is taken as one token",
    ),
    Peer(
        "vllm.goodput", "per_s", "sent", "successes with every value at or below its limit / duration", "value", "",
        "TPOT 0", _VLLM, failed="failed requests are not good, and their time counts",
    ),
    Peer(
        "distserve.attainment", "ratio", "sent", "results that keep TTFT and TPOT / results", "value", "", "TPOT 0",
        "DistServe's evaluation code", "", "where its clock starts",
        "failed requests have no result, so they are not in it",
    ),
    Peer(
        "mlperf.goodput", "per_s", "due",
        "completed samples per second, if p99 of each limit holds on its own with early stopping; else none", "value", "",
        "TPOT negative", "MLPerf inference rules, LoadGen results.cc",
        "without the rules on duration and counts; DistServe and MLPerf search for the highest rate, this is one run",
        failed="with a failed request there is no such number",
    ),
)  # fmt: skip

CATALOGUE: Mapping[str, Peer] = MappingProxyType({peer.name: peer for peer in _ENTRIES})
