"""``plimsoll gate`` answers by its exit code, and refuses what it could only answer falsely."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.run.promises import Asked
from plimsoll.harness.verbs.gate import _judge_again
from plimsoll.slo.records.trace_ids import TraceIds
from tests.e2e.plimsoll import plimsoll_here
from tests.spine.records.test_spans import otlp, span
from tests.unit.harness.sealed_runs import sealed_run

STOPPED = "the run was interrupted before its end. What was measured until then is kept, and decides nothing: let the next run come to its end"  # noqa: E501


@pytest.mark.parametrize(
    ("objective", "code"), [("p50(ttft) <= 100ms", 0), ("p50(ttft) <= 20ms", 1), ("p99(ttft) <= 100ms", 3)]
)
def test_the_exit_code_is_the_verdict(objective: str, code: int, tmp_path: Path) -> None:
    assert _judge_again(sealed_run(tmp_path / "r"), Asked([objective]), [], as_json=False) == code


def test_a_gate_without_objectives_is_a_mistake_and_a_report_without_is_not(tmp_path: Path) -> None:
    run = sealed_run(tmp_path / "r")
    with pytest.raises(HarnessFault, match="no objective to judge by"):
        _judge_again(run, Asked(), [], as_json=False)
    with pytest.raises(HarnessFault, match="no objective to judge by"):  # vLLM's limits only say what good is
        _judge_again(run, Asked(goodput="ttft:200"), [], as_json=False)
    assert _judge_again(run, Asked(), [], as_json=False, rewrite=True) == 0


def test_an_address_of_traces_is_refused_where_there_are_none_and_where_it_names_none(tmp_path: Path) -> None:
    run = sealed_run(tmp_path / "r")
    with pytest.raises(HarnessFault) as caught:
        _judge_again(run, Asked(), [], as_json=False, rewrite=True, trace_url="http://jaeger/trace/")
    assert [text.split(":")[0] for text in caught.value.errors] == ["--trace-url", "--trace-url"]
    said = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**said, "traceparent": 0.01}))
    _judge_again(run, Asked(), [], as_json=False, rewrite=True, trace_url="http://jaeger/trace/{trace_id}")
    found = json.loads((run / "report.json").read_text())["slowest"]
    assert found["trace_url"] == "http://jaeger/trace/{trace_id}"
    assert f"http://jaeger/trace/{found['latency'][0]['trace_id']}" in (run / "report.html").read_text()


@pytest.mark.parametrize(
    "address", ["http://me:hunter2-hunter2@jaeger/{trace_id}", "http://j/{trace_id}?token=hunter2-hunter2"]
)
def test_an_address_of_traces_with_a_credential_is_refused_and_not_repeated(tmp_path: Path, address: str) -> None:
    run = sealed_run(tmp_path / "r")
    with pytest.raises(HarnessFault, match="it holds a credential") as caught:
        _judge_again(run, Asked(), [], as_json=False, rewrite=True, trace_url=address)
    assert "hunter2" not in str(caught.value.errors)
    assert not (run / "report.json").exists()


def test_spans_are_the_stages_of_a_report_and_those_of_another_run_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, spans = sealed_run(tmp_path / "r"), tmp_path / "spans.jsonl"
    spans.write_bytes(otlp(span("ab" * 16, "a", "", "handle", 0, 5_000_000)))
    with pytest.raises(HarnessFault, match="carried no trace context"):
        _judge_again(run, Asked(), [], as_json=False, rewrite=True, spans=[spans])
    said = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**said, "traceparent": 0.01}))
    with pytest.raises(HarnessFault, match="1 trace, and none is of a request"):
        _judge_again(run, Asked(), [], as_json=False, rewrite=True, spans=[spans])
    (tmp_path / "wrong").write_text("{}")
    nowhere = [tmp_path / "nowhere", spans, tmp_path / "wrong"]
    with pytest.raises(HarnessFault, match="can't be read") as caught:
        _judge_again(run, Asked(), [], as_json=False, rewrite=True, spans=nowhere)
    assert ["nowhere" in text or "wrong: line 1" in text for text in caught.value.errors] == [True, True]
    own = [TraceIds.of(said["run_id"], 1.0).header(query, 0, False)[3:35].decode() for query in range(40)]
    more = tmp_path / "gateway.jsonl.gz"
    more.write_bytes(gzip.compress(b"\n".join(otlp(span(trace, "a", "", "POST", 0, 9_000_000)) for trace in own)))
    spans.write_bytes(b"\n".join(otlp(span(trace, "b", "a", "handle", 0, 5_000_000)) for trace in own))
    assert _judge_again(run, Asked(), [], as_json=False, rewrite=True, spans=[spans, more]) == 0
    assert "stages of 40 of 40 requests" in capsys.readouterr().err
    anatomy = json.loads((run / "report.json").read_text())["anatomy"]
    assert (anatomy["n"], anatomy["bands"][0]["stages"][0]["ns"]) == (40, 5_000_000)


def test_two_documents_for_standard_output_are_refused(tmp_path: Path) -> None:
    asked = Asked(["p50(ttft) <= 1s"])
    with pytest.raises(HarnessFault, match="all go to standard output"):
        _judge_again(sealed_run(tmp_path / "r"), asked, ["junit=-"], as_json=True)
    with pytest.raises(HarnessFault, match="all go to standard output"):
        _judge_again(tmp_path / "r", asked, ["junit=-", "markdown=/dev/stdout"], as_json=False)


@pytest.mark.parametrize("name", ["scenario.yaml", "manifest.json", "generator.json"])
def test_an_emptied_file_of_a_run_is_one_clear_error(name: str, tmp_path: Path) -> None:
    run = sealed_run(tmp_path / "r")
    (run / name).write_text("null" if name.endswith("json") else "")
    with pytest.raises(HarnessFault, match="damaged or from another version"):
        _judge_again(run, Asked(["p50(ttft) <= 1s"]), [], as_json=True)


def test_a_format_on_standard_output_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = sealed_run(tmp_path / "r")
    _judge_again(run, Asked(["p50(ttft) <= 1s"]), ["annotations=-"], as_json=False)
    assert "::notice title=" in capsys.readouterr().out
    _judge_again(run, Asked(["p50(ttft) <= 1s"]), [], as_json=True)
    assert json.loads(capsys.readouterr().out)["verdict"]["outcome"] == "PASS"


@pytest.mark.parametrize(
    ("objective", "code"), [("p50(ttft) <= 100ms", 0), ("p50(ttft) <= 20ms", 1), ("p99(ttft) <= 100ms", 3)]
)
def test_the_json_says_the_exit_code_in_print_and_in_the_file(
    objective: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = sealed_run(tmp_path / "r")
    assert _judge_again(run, Asked([objective]), [], as_json=True, rewrite=True) == code
    assert json.loads(capsys.readouterr().out)["exit_code"] == code
    assert json.loads((run / "report.json").read_text())["exit_code"] == code


def test_the_json_says_2_where_a_file_could_not_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plimsoll.harness.run.judged._write", lambda path, data, named: False)
    with pytest.raises(HarnessFault, match="not every file could be written") as raised:
        _judge_again(sealed_run(tmp_path / "r"), Asked(["p50(ttft) <= 20ms"]), [], as_json=True, rewrite=True)
    assert json.loads(capsys.readouterr().out)["exit_code"] == raised.value.code == 2


@pytest.mark.parametrize(
    ("slo", "begins", "holds"),
    [
        (["p50(ttft) <= 100ms"], "PASS p50(ttft) <= 100ms: ", "of 40"),
        (["p50(ttft) <= 1s", "p90(ttft) <= 30ms", "p50(ttft) <= 20ms"], "FAIL p90(ttft) <= 30ms: ", "40 of 40"),
        (["p50(ttft) <= 1s", "p99(ttft) <= 100ms"], "INCONCLUSIVE p99(ttft) <= 100ms: ", "of 40"),
    ],
)
def test_quiet_is_one_line_with_what_decides_and_where_it_lies(
    slo: list[str], begins: str, holds: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = sealed_run(tmp_path / "r")
    _judge_again(run, Asked(slo), [], as_json=False, quiet=True)
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert said.startswith(begins)
    assert holds in said
    assert said.endswith(f"  {run}\n")


def test_quiet_says_why_a_run_proves_nothing_and_that_nothing_was_promised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = sealed_run(tmp_path / "r")
    _judge_again(run, Asked(), [], as_json=False, rewrite=True, quiet=True)
    assert capsys.readouterr().out == f"PASS no objective given  {run}\n"
    facts = run / "generator.json"
    facts.write_text(facts.read_text().replace('"interrupted": false', '"interrupted": true'))
    assert _judge_again(run, Asked(["p50(ttft) <= 1s"]), [], as_json=False, quiet=True) == 4
    assert capsys.readouterr().out == f"INVALID {STOPPED}  {run}\n"


def test_quiet_leaves_no_room_for_another_document_on_standard_output(tmp_path: Path) -> None:
    with pytest.raises(HarnessFault, match="--json and --quiet: all go to standard output"):
        _judge_again(sealed_run(tmp_path / "r"), Asked(["p50(ttft) <= 1s"]), [], as_json=True, quiet=True)


def test_a_run_is_said_on_one_line_too(tmp_path: Path) -> None:
    load = ("--protocol", "null", "--kind", "concurrency", "--concurrency", "1", "--queries", "20")
    done = plimsoll_here("run", *load, "--slo", "p50(latency) <= 9s", "--out", "r", "--quiet", cwd=tmp_path)
    (line,) = done.stdout.splitlines()
    assert line.split()[0] in ("PASS", "INVALID"), done.stderr  # the machine may be busy
    assert line.endswith("  r")
    both = plimsoll_here("run", *load, "--out", "s", "--quiet", "--json", cwd=tmp_path)
    assert (both.returncode, "--json and --quiet: all go to standard output" in both.stderr) == (2, True)


def test_the_json_of_every_verb_with_a_verdict_has_the_exit_code() -> None:
    from plimsoll.reports.documents.capacity import CapacityReport
    from plimsoll.reports.documents.coldstart import ColdstartReport
    from plimsoll.reports.documents.search import SearchReport
    from plimsoll.reports.models.comparison_parts import ComparisonReport
    from plimsoll.reports.models.sweep_parts import SweepReport
    from plimsoll.reports.report import Report

    documents = (Report, ComparisonReport, SearchReport, SweepReport, CapacityReport, ColdstartReport)
    assert all("exit_code" in document.model_fields for document in documents)


def test_a_budget_is_judged_afterwards_by_the_hops_of_a_file(tmp_path: Path) -> None:
    """As a mapping of its own or as a scenario's key; the run's scenario stays as it was run."""
    run, file = sealed_run(tmp_path / "r"), tmp_path / "budget.yaml"
    before = (run / "scenario.yaml").read_bytes()
    for text in ("held: 1ms of client.held\nrest: 10ms\n", "budget: {held: 2ms of client.held}\n"):
        file.write_text(text)
        assert _judge_again(run, Asked(), [], as_json=False, rewrite=True, budget=file) == 0
        spent = json.loads((run / "report.json").read_text())["hops"]["spent"]
        assert spent[0]["hops"] == ["held"]
        assert spent[0]["limit_ns"] == (1_000_000 if "rest" in text else 2_000_000)
    assert (run / "scenario.yaml").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("queue: soon\nwait: 5ms of queue\nq: 5ms of queue.a\n", "no limit"),
        ("queue: 5ms\nqueue: 6ms\n", ":2:"),
        ("- queue\n", "no hops"),
        ("queue: 5\nwait: 5ms\n", "budget.queue: '5' is no limit. Write 20ms"),
        ("queue:\nwait: 5ms\n", "budget.queue: '' is no limit"),
        ("name: chat\nparams: {rate: 4}\n", "no hops"),
        ("{}", "no hops"),
        (None, "can't be read"),
    ],
)
def test_a_budget_that_can_not_be_used_is_refused_with_its_file(tmp_path: Path, text: str | None, says: str) -> None:
    run, file = sealed_run(tmp_path / "r"), tmp_path / "budget.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(HarnessFault, match=re.escape(says)) as caught:
        _judge_again(run, Asked(), [], as_json=False, rewrite=True, budget=file)
    assert all(error.startswith(f"--budget {file}") for error in caught.value.errors)
    assert not (run / "report.json").exists()
