"""Objectives on labels that no row of a run will have are refused before anything is sent, all at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.run.contradictions import check_labels
from plimsoll.harness.run.job import prepare
from plimsoll.harness.series.one_run import carry_out
from plimsoll.scenarios.spec import parse
from plimsoll.slo.objectives.objective import parse as objective

MIX = {"mix": {"chat": {"kind": "server", "params": {"rate": 5}}, "bulk": {"kind": "offline"}}}

BARGE_IN: dict[str, Any] = {"kind": "sessions", "params": {"barge_in": {"share": "30%", "after": "400ms"}}}


@pytest.mark.parametrize(
    ("scenario", "text", "error"),
    [
        ({}, "p99(ttft{class=chat}) <= 1s", "no row of this run has the label class. There are cached_tokens, "),
        ({}, "each backend: p99(ttft) <= 1s", "no row of this run has the label backend"),
        ({"labels": {"backend": "header x-served-by"}}, "each backend: p99(ttft) <= 1s", None),
        ({}, "p99(ttft{prompt_tokens>=8000,cached_tokens>1}) <= 1s", None),
        ({}, "p99(latency{admitted}) <= 1s", None),
        (MIX, "each class: p99(ttft) <= 1s", None),
        (MIX, "p99(ttft{class=chat|bulk}) <= 1s", None),
        (MIX, "p99(ttft{class!=chta}) <= 1s", "class is chat, bulk, and never chta"),
        ({}, "p99(ttft{turn>1}) <= 1s", "has the label turn"),
        ({"kind": "sessions", "params": {"rate": 1, "turns": 2}}, "p99(ttft{turn>1}) <= 1s", None),
        ({}, "ratio(retried) <= 1%", r"Give the scenario client: {retry: ...}"),
        ({"client": {"retry": {"max": 1}}}, "ratio(retried) <= 1%", None),
        ({}, "ratio(degraded) <= 1%", "Give the scenario degraded: header NAME"),
        ({"degraded": "header x-fallback"}, "ratio(degraded) <= 1%", None),
        (
            {"kind": "sessions", "params": {"rate": 1}},
            "p90(barge_in_stop) <= 1s",
            "Give the scenario params.barge_in: {",
        ),
        (BARGE_IN, "p90(barge_in_stop{barge_in>0}) <= 1s", None),
    ],
)
def test_what_no_row_will_have_is_an_error(scenario: dict[str, Any], text: str, error: str | None) -> None:
    given = scenario if "mix" in scenario else {"kind": "server", "params": {"rate": 5}} | scenario
    found = check_labels(parse(given, "f.yaml"), [objective(text)])
    if error is None:
        assert found == []
    else:
        assert len(found) == 1
        assert found[0].startswith(text)
        assert error in found[0]


def test_what_is_promised_of_agents_needs_some(tmp_path: Path) -> None:
    flags = {"protocol": "null", "kind": "server", "rate": 5, "queries": 1}
    for number, text in enumerate(("each agent: p99(latency) <= 1s", "p99(latency{region=eu|us}) <= 1s")):
        prepared = prepare(None, flags, [text], (), tmp_path / str(number))
        with pytest.raises(HarnessFault, match=r"one host sends this run, and no row has the label (agent|region)"):
            carry_out(prepared)
        assert not any((tmp_path / str(number)).glob("**/*.parquet"))
