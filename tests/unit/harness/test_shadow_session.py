"""What ``plimsoll shadow`` and ``replay --reference`` refuse before anything is sent, and what rows a verdict is of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import Result
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from plimsoll.harness.run import mixture
from plimsoll.harness.series.comparison.shadow_session import _said
from plimsoll.harness.verbs.cli import command_line
from plimsoll.reports.documents import drift as documents
from plimsoll.slo.comparison.drift import comparator, drift, later
from plimsoll.slo.promises import Promises
from plimsoll.slo.records.records import from_columns
from plimsoll.slo.verdict.accuracy import Answer

LOAD = {"name": "chat", "kind": "server", "params": {"rate": 80}, "target": {"protocol": "openai-chat"}}
BOTH = ("--url", "http://127.0.0.1:9", "--shadow", "http://127.0.0.1:8")


def asked(folder: Path, *flags: str, load: Any = LOAD) -> Result:
    (folder / "chat.yaml").write_text(yaml.safe_dump(load))
    words = ["shadow", str(folder / "chat.yaml"), *flags, "--out", str(folder / "out")]
    return CliRunner().invoke(command_line("shadow"), words)


def errors(found: Result) -> Sequence[str]:
    assert found.exception is not None
    return list(getattr(found.exception, "errors", [str(found.exception)]))


def test_every_mistake_is_told_at_once_and_nothing_is_made(tmp_path: Path) -> None:
    load = {**LOAD, "keep": "none", "objectives": ["p99(nosuch) <= 1s"]}
    said = "\n".join(errors(asked(tmp_path, "--compare", "alike", "--differs", "100%", load=load)))
    assert "--compare: 'alike' is no way to compare answers" in said
    assert "--differs: 100% is not between 0% and 100%" in said
    assert "--shadow: where is it?" in said
    assert "nosuch" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"kind": "concurrency", "params": {"concurrency": 2}}, "with kind concurrency the answers decide when"),
        ({"kind": "offline", "params": {}}, "with kind offline the answers decide"),
        ({"kind": "sessions", "params": {"rate": 2, "turns": 3}}, "a turn of a session waits for the answer before it"),
        ({"keep": "tail"}, "keep tail drops answers"),
        ({"mode": "accuracy"}, "mode accuracy compares with references"),
        ({"cancel": {"share": 0.1, "after": "1s"}}, "cancel takes answers away"),
        ({"client": {"hedge": {"after": "1s", "to": "http://127.0.0.1:7"}}}, "client.hedge.to would send"),
        ({"arms": {"a": {"share": "50%"}, "b": {"share": "50%"}}}, "a shadow has the arms primary and shadow, and no"),
        ({"target": {"protocol": "null"}}, "the null protocol answers nothing"),
        ({"objectives": ["p99(ttft{arm=shadow}) <= 1s"]}, "arm is primary, and never shadow"),
    ],
)  # fmt: skip
def test_what_a_shadow_cannot_do_is_refused_with_the_reason(more: dict[str, Any], said: str, tmp_path: Path) -> None:
    found = errors(asked(tmp_path, *BOTH, load={**LOAD, **more}))
    assert any(said in text for text in found), found
    assert not (tmp_path / "out").exists()


def test_one_path_in_place_of_two_routes_of_a_gateway_is_refused(tmp_path: Path) -> None:
    """It would compare one route with itself, and find no difference."""
    load = {**LOAD, "target": {"protocol": "http", "options": {"path": "/text", "method": "GET"}}}
    routes = ("--url", "http://127.0.0.1:9/old", "--shadow", "http://127.0.0.1:9/new")
    said = (
        "target.options.path: /text takes the place of the paths of http://127.0.0.1:9/old and http://127.0.0.1:9/new"
    )
    assert said in "\n".join(errors(asked(tmp_path, *routes, load=load)))
    assert not (tmp_path / "out").exists()
    alike = errors(asked(tmp_path, "--url", "http://127.0.0.1:9", "--shadow", "http://127.0.0.1:8/", load=load))
    assert not any("takes the place" in text for text in alike), alike
    own = {"primary": {"share": "100%", "target": {"options": {"path": "/a"}}}, "shadow": {"share": "copy"}}
    said_own = errors(asked(tmp_path, *routes, load={**load, "arms": own}))
    assert not any("takes the place" in text for text in said_own), said_own


def test_a_run_that_kept_no_answers_is_no_reference(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "trace.jsonl").write_text('{"timestamp": 0, "input_length": 5, "output_length": 5}\n')
    words = [
        "replay",
        str(tmp_path / "trace.jsonl"),
        "--reference",
        str(tmp_path / "run"),
        "--out",
        str(tmp_path / "o"),
    ]
    (said,) = errors(CliRunner().invoke(command_line("replay"), words))
    assert said.endswith("run kept no answers. Make it with --keep-answers")
    assert not (tmp_path / "o").exists()


def test_a_reference_that_is_not_there_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").write_text('{"timestamp": 0, "input_length": 5, "output_length": 5}\n')
    words = ["replay", str(tmp_path / "trace.jsonl"), "--reference", str(tmp_path / "no"), "--out", str(tmp_path / "o")]
    (said,) = errors(CliRunner().invoke(command_line("replay"), words))
    assert said.endswith("no. Give the directory of a run with --keep-answers")


def test_an_answer_without_a_word_is_not_shown_as_none() -> None:
    shown = [documents.ExamplePart(query_id=1, sample_ix=0, reference="", answer=None)]
    page = documents.FORMATS["html"](report(drift=report().drift.model_copy(update={"examples": shown}))).decode()
    assert "(empty)</td>" in page.replace("\n", "")
    assert "no answer</td>" in page


def test_how_to_compare_needs_something_to_compare_with(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").write_text('{"timestamp": 0, "input_length": 5, "output_length": 5}\n')
    words = ["replay", str(tmp_path / "trace.jsonl"), "--compare", "exact", "--out", str(tmp_path / "o")]
    found = errors(CliRunner().invoke(command_line("replay"), words))
    assert "--compare, --differs: only with --reference. Add it, or leave these out" in found


def test_the_verdict_is_of_rows_whose_labels_know_no_copy() -> None:
    classes = ["primary", "shadow", "primary", "other"]
    arms = ["primary", "shadow", "primary", None]
    rows = from_columns(4, due_ns=[0, 0, 1, 2], labels={"class": classes, "arm": arms, "tenant": ["a", "b", "a", "c"]})
    found = mixture.only(rows, ("primary", "other"))
    assert found["due_ns"].tolist() == [0, 1, 2]
    assert found.labels is not None
    assert found.labels.texts["class"] == ("primary", "other")
    assert found.labels.texts["arm"] == ("primary",)
    assert np.asarray(found.labels.columns["class"]).tolist() == [0, 0, 1]
    assert np.asarray(found.labels.columns["arm"]).tolist() == [0, 0, -1]
    assert np.asarray(found.labels.columns["tenant"]).tolist() == [0, 0, 2]


@pytest.mark.parametrize(
    ("differing", "own", "broken", "interrupted", "outcome", "code"),
    [
        (0, "PASS", [], False, "PASS", 0),
        (0, "INCONCLUSIVE", [], False, "INCONCLUSIVE", 3),
        (200, "INCONCLUSIVE", [], False, "FAIL", 1),
        (0, "FAIL", [], False, "FAIL", 1),
        (200, "INVALID", [], False, "INVALID", 4),
        (200, "PASS", ["of the shadow: a worker died"], False, "INVALID", 4),
        (0, "PASS", [], True, "INTERRUPTED", 130),
    ],
)
def test_the_outcome_is_the_worst_of_drift_primary_and_generator(
    differing: int, own: str, broken: list[str], interrupted: bool, outcome: str, code: int
) -> None:
    pairs = [((i, 0), Answer("a"), Answer("b" if i < differing else "a")) for i in range(400)]
    directory = SimpleNamespace(path=Path("out"))
    run: Any = SimpleNamespace(
        interrupted=interrupted, sealed=SimpleNamespace(directory=directory, scenario={"name": "chat"})
    )
    judged: Any = SimpleNamespace(verdict=SimpleNamespace(outcome=own, reasons=["too slow"]))
    asked = comparator("exact"), Fraction(1, 100)
    said = _said("shadow", asked, pairs, run, judged, Promises(), broken)
    assert (said.outcome, said.exit_code, said.primary) == (outcome, code, own)
    if interrupted:
        assert said.reasons[0] == "stopped by the user before the end"
    elif broken:
        assert said.reasons[0] == broken[0]
    else:  # what is worse comes first
        worse = own == outcome != said.drift.outcome
        assert said.reasons[0].startswith("the primary alone" if worse else f"{differing} of 400 answers differ")
    assert any(text.startswith(f"the primary alone: {own}") for text in said.reasons)


def report(**more: Any) -> documents.DriftReport:
    pairs = [(Answer("a"), None if i % 90 == 0 else Answer("b" if i % 40 == 0 else "a")) for i in range(600)]
    times = from_columns(
        600, due_ns=np.arange(600), sent_ns=np.arange(600), done_ns=np.arange(600) + 1_000_000, status=0
    )
    found = drift(pairs, comparator("exact"), "0.01", "0.95")
    shown = [documents.ExamplePart(query_id=0, sample_ix=0, reference=documents.shown(Answer("x" * 500)), answer=None)]
    given: dict[str, Any] = {
        "name": "chat", "kind": "shadow", "outcome": "FAIL", "reasons": ["20 of 600 answers differ"],
        "confidence": 0.95, "primary": "PASS",
        "drift": documents.drift_part(found, "exact", 0.01, shown), "warnings": ["Of the shadow: it was late"],
        "later": [documents.later_part(later("latency", times, times, "0.95"))], "run": "out", "reference": None,
        "exit_code": 1, **more,
    }  # fmt: skip
    return documents.DriftReport(**given)


def test_the_document_is_what_its_schema_says_and_every_format_says_it() -> None:
    made = report()
    Draft202012Validator(documents.json_schema()).validate(made.document())
    assert json.loads(documents.FORMATS["json"](made)) == made.document()
    for name in ("html", "markdown"):
        page = documents.FORMATS[name](made).decode()
        assert "600" in page
        assert "20 of 600 answers differ" in page
        assert "lack the other answer" in page
        assert "Of the shadow: it was late" in page
        assert "x" * 200 not in page
    assert "nothing is paired" in documents.FORMATS["markdown"](report(later=[])).decode()
    assert documents.said(made.drift).startswith("20 of 600 answers differ")
    assert "Times" not in documents.FORMATS["markdown"](report(kind="reference")).decode()
