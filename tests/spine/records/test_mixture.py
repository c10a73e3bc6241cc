"""Rows and facts of several classes: together one run, and each class's own again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.harness.run import mixture
from plimsoll.harness.run.rundir import RunDirectory, Sealed, join
from plimsoll.slo.judge import judge
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.promises import Promises
from plimsoll.slo.records.labels import LabelTable
from plimsoll.slo.records.records import Records, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.mixed import assess_run, of_class, of_rows

MS = 1_000_000


def rows(n: int, gap_ms: int = 20, late_ms: float = 0.01, slow_ms: int = 5, **more: Any) -> Records:
    """Requests on a constant schedule, each answered after ``slow_ms``."""
    due = np.arange(n) * gap_ms * MS
    ready = due + round(late_ms * MS)
    done = ready + slow_ms * MS
    times = {"due_ns": due, "ready_ns": ready, "sent_ns": ready, "first_byte_ns": done, "done_ns": done}
    return from_columns(n, **times, status=0, attempts=1, **more)


def facts(n: int, **more: Any) -> GeneratorFacts:
    own = {"open_loop": True, "planned": n, "planned_queries": n, "sent": n, "recorded": n, "elapsed_ns": 20 * MS * n}
    return GeneratorFacts(**{**own, **more})


def manifest(name: str, place: int, worker: int = 0) -> dict[str, Any]:
    return {"class": name, "first_query_id": place * mixture.IDS, "first_worker": worker}


def joined(**parts: Records) -> Records:
    return mixture.whole({name: (manifest(name, i, i), part) for i, (name, part) in enumerate(parts.items())})


def test_rows_of_a_class_come_back_as_they_were_with_their_labels() -> None:
    chat = rows(3, worker=1).labelled(LabelTable.of({"session": [0, 0, None], "backend": ["a", None, "b"]}))
    bulk = rows(2).labelled(LabelTable.of({"session": [0, 1], "frame_set": [0, None]}))
    whole = mixture.whole({"chat": (manifest("chat", 0), chat), "bulk": (manifest("bulk", 1, worker=2), bulk)})
    assert whole["query_id"].tolist() == [0, 1, 2, mixture.IDS, mixture.IDS + 1]
    assert whole["worker"].tolist() == [1, 1, 1, 2, 2]
    assert whole.labels is not None
    assert whole.labels.texts["class"] == ("chat", "bulk")
    assert np.asarray(whole.labels.columns["session"]).tolist() == [0, 0, -1, mixture.IDS, mixture.IDS + 1]
    assert np.asarray(whole.labels.columns["frame_set"]).tolist() == [-1, -1, -1, mixture.IDS, -1]
    again = mixture.part(whole, manifest("chat", 0))
    assert again.labels is not None
    assert sorted(again.labels.columns) == ["backend", "frame_set", "session"]
    assert np.asarray(again.labels.columns["session"]).tolist() == [0, 0, -1]
    for given, back in ((chat, again), (bulk, mixture.part(whole, manifest("bulk", 1, worker=2)))):
        assert all(np.array_equal(given[name], back[name]) for name in ("query_id", "worker", "due_ns", "status"))
    assert len(mixture.part(whole, manifest("nobody", 2))) == 0


def test_facts_add_up_times_are_the_worst_and_texts_say_whose_they_are() -> None:
    found = mixture.facts_of(
        {
            "chat": facts(10, elapsed_ns=5, plan_samples=10, worker_faults=("it died",), process="poisson"),
            "bulk": facts(4, open_loop=False, elapsed_ns=9, interrupted=True, aborted="too many"),
        }
    )
    assert (found.planned, found.sent, found.n_workers, found.elapsed_ns) == (14, 14, 2, 9)
    assert (found.open_loop, found.process, found.interrupted, found.aborted) == (False, None, True, "too many")
    assert found.worker_faults == ("class chat: it died",)
    assert found.plan_samples == 0, "a closed loop has no number of samples"


def test_a_class_that_was_not_sent_as_planned_makes_the_run_invalid_and_is_named() -> None:
    whole = joined(chat=rows(200), bulk=rows(50))
    good = {"chat": facts(200), "bulk": facts(50)}
    assert assess_run(whole, mixture.facts_of(good), good).outcome == "VALID"
    short = {"chat": facts(200), "bulk": facts(60, sent=60, recorded=60)}
    seen = assess_run(whole, mixture.facts_of(short), short)
    assert seen.outcome == "INVALID"
    assert all(reason.startswith("class bulk: ") for reason in seen.reasons), seen.reasons
    assert (seen.planned, seen.sent, seen.unsent) == (260, 250, 10)
    assert {name: one.outcome for name, one in seen.classes.items()} == {"chat": "VALID", "bulk": "INVALID"}


def test_what_is_promised_of_a_class_is_judged_on_its_rows_and_its_own_schedule() -> None:
    whole = joined(chat=rows(200, slow_ms=5), bulk=rows(200, slow_ms=900))
    classes = {"chat": facts(200), "bulk": facts(200)}
    texts = ("p90(latency{class=chat}) <= 100ms", "p90(latency{class=bulk}) <= 100ms")
    judged = judge(whole, mixture.facts_of(classes), Promises(tuple(map(parse, texts))), classes=classes)
    assert [one.outcome for one in judged.verdict.objectives] == ["PASS", "FAIL"]
    among, validity = of_rows(of_class(whole, "chat"), whole, judged.validity)
    assert (len(among), validity.planned) == (200, 200)
    assert of_rows(whole, whole, judged.validity)[1] is judged.validity


@pytest.mark.parametrize("late_ms", [0.01, 30.0])
def test_a_strict_limit_on_one_class_holds_the_other_to_no_lag(late_ms: float) -> None:
    """Lag may be a share of what is promised: a batch job's is not measured by what chat was promised."""
    whole = joined(chat=rows(200), bulk=rows(200, late_ms=late_ms, slow_ms=2000))
    closed = facts(200, open_loop=False, planned_queries=0, slots=(1,))
    classes = {"chat": facts(200), "bulk": closed}
    promised = [parse("p99(latency{class=chat}) <= 1ms")]
    seen = assess_run(whole, mixture.facts_of(classes), classes, promised)
    alone = assess_run(of_class(whole, "bulk"), closed, {}, ())
    assert seen.classes["bulk"].outcome == alone.outcome


def test_a_mix_that_no_disk_takes_is_judged_from_memory_and_invalid(tmp_path: Path) -> None:
    target = {"url": "http://h:1", "model": "m", "bundled": None}
    parts = {}
    for place, name in enumerate(("chat", "bulk")):
        folder = RunDirectory(tmp_path / "r" / mixture.FOLDER / name)
        own = manifest(name, place, place) | {"run_id": "r1", "target": target, "workers": 1, "plan_fingerprint": name}
        parts[name] = Sealed(folder, own, {}, rows(200), facts(200))
    sealed = join(RunDirectory(tmp_path / "r"), {"name": "m"}, parts)  # the folder is not there
    assert not sealed.whole
    assert len(sealed.records) == 400
    assert sealed.manifest["workers"] == 2
    judged = judge(sealed.records, sealed.facts, classes=sealed.classes)
    assert judged.validity.outcome == "INVALID"
    assert any("could not be sealed" in reason for reason in judged.validity.reasons), judged.validity.reasons
    (tmp_path / "r").mkdir()
    whole = join(RunDirectory(tmp_path / "r"), {"name": "m"}, parts)
    assert whole.whole
    assert judge(whole.records, whole.facts, classes=whole.classes).validity.outcome == "VALID"
