"""Events and phases of a scenario file: what is refused, with its place, and the phases that events cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.run import happenings
from plimsoll.harness.run.contradictions import check_labels
from plimsoll.harness.run.job import prepare, promised
from plimsoll.scenarios import spec
from plimsoll.scenarios.scenario import Scenario
from plimsoll.scenarios.spec import ScenarioError
from plimsoll.scenarios.text.events import EventSection, cut, phases_of, stretches
from plimsoll.slo.objectives.objective import parse

S = 1_000_000_000
LOAD: dict[str, Any] = {"kind": "server", "params": {"rate": 20}, "stop": {"min_duration": "40s"}}


def scenario(**more: Any) -> Scenario:
    return spec.parse({**LOAD, **more}, "f.yaml")


def wrong(**more: Any) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        scenario(**more)
    return caught.value.errors


@pytest.mark.parametrize(
    ("event", "says"),
    [
        ({"at": "1s"}, "events[0]: does nothing. Give one of run, http, fault and note."),
        ({"at": "1s", "note": "x", "run": "ls"}, "has run and note"),
        ({"at": "1s", "note": "x", "name": "a/b"}, "'a/b' is no name"),
        ({"at": "1s", "http": {"url": "ftp://h/x"}}, "is no URL of http or https"),
        ({"at": "soon", "note": "x"}, "not a duration"),
        ({"at": "50s", "note": "x"}, "events[0].at: is 50s, and the run sends nothing after 45s"),
        ({"at": "1s", "note": "x", "phase": "p"}, "phases names the parts of the run already"),
    ],
)
def test_what_is_wrong_with_an_event_is_said_at_its_place(event: dict[str, Any], says: str) -> None:
    stop = {"min_duration": "40s", "max_duration": "45s"}
    assert any(says in text for text in wrong(events=[event], stop=stop, phases={"a": {"to": "9s"}}))


def test_phases_that_overlap_and_events_of_one_name_are_refused_together() -> None:
    phases = {"b": {"from": "2s"}, "a": {"from": "1s", "to": "3s"}, "c": {"from": "9s"}}
    events = [{"at": "1s", "name": "n", "note": "x"}] * 2
    assert wrong(events=events, phases=phases) == [
        "f.yaml:events[1].name: 'n' is another event's name already. Take another.",
        "f.yaml:phases.b: begins at 2s, and a ends at 3s: they overlap. Give a an end (to: 2s), or move one.",
        "f.yaml:phases.c: begins at 9s, and b goes on to the end of the run: they overlap. Give b an end (to: 9s), or "
        "move one.",
    ]
    assert "ends at 1s, and begins at 2s" in wrong(phases={"a": {"from": "2s", "to": "1s"}})[0]


def test_a_class_of_a_mix_has_no_events_of_its_own() -> None:
    one = {"kind": "server", "events": [{"at": "1s", "note": "x"}]}
    with pytest.raises(ScenarioError, match="is the run's"):
        spec.parse({"mix": {"a": one}}, "f.yaml")


def test_a_file_says_its_events_and_phases_again() -> None:
    made = scenario(events=[{"at": "3s", "run": "ls"}], phases={"a": {"to": "3s", "objectives": ["p50(ttft) <= 1s"]}})
    assert spec.parse(made.to_mapping()).events == made.events
    assert spec.parse(made.to_mapping()).phases == made.phases
    assert promised(made) == ["p50(ttft{phase=a}) <= 1s"]
    assert {"events", "phases"}.isdisjoint(scenario().to_mapping())


@pytest.mark.parametrize(
    ("objective", "says"),
    [
        ("p95(ttft{phase=spyke}) <= 1s", "phase is calm, spike, and never spyke"),
        ("recovered(p95(ttft{phase=no}) <= 1s) <= 1s after spike", "and never no"),
        ("recovered(p95(ttft) <= 1s) <= 1s after calm day", "nothing is called calm day; write after, and one of calm"),
        ("recovered(p95(ttft) <= 1s) <= 1s", "the scenario has not one event; write after, and one of calm, spike"),
    ],
)
def test_an_objective_on_what_the_run_has_not_is_refused(objective: str, says: str) -> None:
    made = scenario(phases={"calm": {"to": "9s"}, "spike": {"from": "9s", "to": "12s"}})
    assert says in check_labels(made, [parse(objective)])[0]
    assert check_labels(made, [parse("recovered(p95(ttft) <= 1s) <= 1s after spike")]) == []
    both = scenario(events=[{"at": "9s", "name": "deploy", "note": "x"}], phases={"calm": {"to": "9s"}})
    for after in ("", " after deploy", " after calm"):
        assert check_labels(both, [parse(f"recovered(p95(ttft{{phase=calm}}) <= 1s) <= 1s{after}")]) == []


def test_commands_that_the_shell_could_not_run_are_refused_before_anything_is_sent() -> None:
    commands = [
        "kubectll get pods",
        "if then",
        "X=1 nosuchthing-9",
        "echo $(no)",
        "while false; do :; done",
        "ls /",
    ]
    found, errors = happenings.prepared(scenario(events=[{"at": "1s", "run": one} for one in commands]), "f.yaml")
    assert [text.partition(":events")[2][:6] for text in errors] == ["[0].ru", "[1].ru", "[2].ru"]
    assert "kubectll is no command of this host" in errors[0]
    assert [one.name for one in found][:2] == ["event 1", "event 2"]


def test_secrets_of_events_stay_out_of_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_KEY", "s3cr3t-value-77")
    call = {"url": "http://127.0.0.1:9/x?key=${env:HOOK_KEY}", "headers": {"X-Api-Key": "${env:HOOK_KEY}"}}
    events = [{"at": "1s", "http": call}, {"at": "2s", "run": "echo --token=tok3n-value-88 now"}]
    found, errors = happenings.prepared(scenario(events=events), "f.yaml")
    assert errors == []
    assert found[0].call is not None
    assert found[0].call.headers["X-Api-Key"] == "s3cr3t-value-77"
    assert "tok3n-value-88" in found[1].command
    assert not any(secret in one.public + repr(one) for secret in ("s3cr3t", "tok3n") for one in found if one.command)
    monkeypatch.delenv("HOOK_KEY")
    assert "HOOK_KEY is not set" in happenings.prepared(scenario(events=events), "f.yaml")[1][0]


def test_a_runs_own_copy_runs_its_commands_for_who_says_so_only(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    file = tmp_path / "scenario.yaml"
    file.write_text("name: a\nkind: server\nparams: {rate: 5}\nevents: [{at: 1s, run: ls}]\n")
    with pytest.raises(HarnessFault, match="add --allow-commands"):
        prepare(str(file), {}, [], [], tmp_path / "out")
    assert len(prepare(str(file), {}, [], [], tmp_path / "out", allow_commands=True).job.events) == 1


EVENTS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 20), st.sampled_from(["run", "note"]), st.booleans()), max_size=6
)


@given(EVENTS)
def test_phases_that_events_cut_are_in_order_and_known_beforehand(drawn: list[tuple[int, int, str, bool]]) -> None:
    events = [
        EventSection.model_validate({"at": at, kind: "x", **({"phase": f"p{i}"} if named else {})})
        for i, (at, _, kind, named) in enumerate(drawn)
    ]
    times = [(at * S, (at + (took if kind == "run" else 0)) * S) for at, took, kind, _ in drawn]
    found = cut(events, times)
    assert found[0] == ("before", 0)
    assert [begin for _, begin in found] == sorted(begin for _, begin in found)
    assert {name for name, _ in found} <= set(phases_of(events))
    assert cut(events, [(-1, -1)] * len(events)) == [("before", 0)]


def test_one_event_has_a_before_a_during_and_an_after() -> None:
    (event,) = scenario(events=[{"at": "6s", "run": "ls"}]).events
    assert cut([event], [(6 * S, 9 * S)]) == [("before", 0), ("during", 6 * S), ("after", 9 * S)]
    both = [event, event.model_copy(update={"name": "b", "phase": "later"})]
    assert cut(both, [(6 * S, 9 * S), (8 * S, 8 * S)]) == [("before", 0), ("during event 1", 6 * S), ("later", 8 * S)]


def test_between_phases_of_a_file_there_is_none() -> None:
    phases = scenario(phases={"a": {"from": "2s", "to": "3s"}, "b": {"from": "5s"}}).phases
    assert stretches(phases) == [("a", 2 * S), ("", 3 * S), ("b", 5 * S)]
