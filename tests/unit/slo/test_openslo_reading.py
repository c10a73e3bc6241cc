"""OpenSLO documents: what is read, every trap, and that all mistakes of a file come at once with place and remedy."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from textwrap import indent

import pytest

from plimsoll.slo.objectives import openslo, selector
from plimsoll.slo.objectives.objective import ObjectiveError
from plimsoll.slo.objectives.objective import parse as limit
from plimsoll.slo.objectives.openslo import parse
from plimsoll.slo.objectives.openslo import promise as words
from plimsoll.slo.objectives.openslo.counting import Requests, Values
from plimsoll.slo.objectives.openslo.place import span

MIN = 60_000_000_000
DAY = 1440 * MIN

THRESHOLD = "thresholdMetric: {metricSource: {type: plimsoll, spec: {indicator: ttft, unit: ms}}}"
RATIO = (
    "ratioMetric: {counter: true, good: {metricSource: {type: plimsoll, spec: {events: ok}}}, "
    "total: {metricSource: {type: plimsoll, spec: {events: requests}}}}"
)


def slo(
    indicator: str = THRESHOLD,
    objective: str = "{op: lte, value: 200, target: 0.99}",
    window: str = "{duration: 30d, isRolling: true}",
    method: str = "Occurrences",
    more: str = "",
    annotations: str = "",
    name: str = "chat",
) -> str:
    objectives = objective if objective.startswith("[") else f"[{objective}]"
    return f"""\
apiVersion: openslo/v1
kind: SLO
metadata:
  name: {name}
  annotations: {{{annotations}}}
spec:
  service: web
  indicator: {{metadata: {{name: own}}, spec: {{{indicator}}}}}
  timeWindow: [{window}]
  budgetingMethod: {method}
  objectives: {objectives}
{indent(more, "  ")}
"""


def errors(*documents: str) -> list[str]:
    with pytest.raises(ObjectiveError) as caught:
        parse("\n---\n".join(documents), "slo.yaml")
    return caught.value.errors


def error(*documents: str) -> str:
    (only,) = errors(*documents)
    return only


def other(kind: str, name: str, spec: str) -> str:
    return f"apiVersion: openslo/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n"


CONDITION = "{severity: page, condition: {kind: burnrate, op: gt, threshold: 2, lookbackWindow: 1h, alertAfter: 5m}}"
INLINE = f"[{{kind: AlertCondition, metadata: {{name: c}}, spec: {CONDITION}}}]"
TARGETS = "[{kind: AlertNotificationTarget, metadata: {name: t}, spec: {target: email}}]"


def policy(conditions: str = INLINE, targets: str = TARGETS, when: str = "alertWhenBreaching: true") -> str:
    return f"{{{when}, conditions: {conditions}, notificationTargets: {targets}}}"


# -- what is read ---------------------------------------------------------------------------------------------


def test_a_threshold_is_bound_to_an_indicator_with_its_unit() -> None:
    (found,) = parse(slo()).slos
    assert found.terms.components[0].events == Values(limit("ttft <= 200ms"))
    assert (found.target, found.period_ns, found.name) == (Fraction(99, 100), 30 * DAY, "chat")


@pytest.mark.parametrize(
    ("spec", "objective", "event"),
    [
        ("{indicator: ttft, unit: s}", "{op: lt, value: 0.2, target: 0.99}", "ttft < 0.2s"),
        ("{indicator: output_rate}", "{op: gte, value: 20, target: 0.99}", "output_rate >= 20/s"),
        ("{indicator: output_rate, unit: /s}", "{op: gt, value: 20, target: 0.99}", "output_rate > 20/s"),
        ("{indicator: output_tokens}", "{op: gte, value: 1e1, target: 0.99}", "output_tokens >= 10"),
        ("{indicator: bytes_in}", "{op: lte, value: 900, target: 0.99}", "bytes_in <= 900B"),
        ("{indicator: bytes_in, unit: B}", "{op: lte, value: 900, target: 0.99}", "bytes_in <= 900B"),
        ("{indicator: ttft, unit: us}", "{op: lte, value: 1e-1, target: 0.99}", "ttft <= 0.1us"),
        (
            "{indicator: ttft, unit: s, where: 'turn>1, class=chat'}",
            "{op: lt, value: 0.2, target: 0.99}",
            "ttft{class=chat,turn>1} < 0.2s",
        ),
    ],
)
def test_a_value_has_the_unit_that_the_source_states(spec: str, objective: str, event: str) -> None:
    metric = f"thresholdMetric: {{metricSource: {{type: plimsoll, spec: {spec}}}}}"
    (found,) = parse(slo(metric, objective)).slos
    assert found.limits == (limit(event),)


@pytest.mark.parametrize(
    ("parts", "limits"),
    [
        ("good: {S: {events: ok}}, total: {S: {events: requests}}", ()),
        ("bad: {S: {events: errors}}, total: {S: {events: requests}}", ()),
        ("raw: {S: {events: ok}}, rawType: success", ()),
        ("raw: {S: {events: errors}}, rawType: failure", ()),
        (
            "good: {S: {requests: ttft <= 200ms and tpot <= 50ms}}, total: {S: {events: requests}}",
            ("ttft <= 200ms", "tpot <= 50ms"),
        ),
        ("raw: {S: {requests: [ttft <= 200ms, itl <= 1s]}}, rawType: success", ("ttft <= 200ms", "itl <= 1s")),
    ],
)
def test_a_ratio_counts_requests(parts: str, limits: tuple[str, ...]) -> None:
    spec = parts.replace("{S: ", "{metricSource: {type: plimsoll, spec: ").replace("}}", "}}}")
    (found,) = parse(slo(f"ratioMetric: {{{spec}}}", "{target: 0.99}")).slos
    assert found.terms.components[0].events == Requests(tuple(map(limit, limits)))


def test_a_ratio_may_be_about_some_requests() -> None:
    where = "where: 'class=chat'"
    both = f"good: {{S: {{events: ok, {where}}}}}, total: {{S: {{events: requests, {where}}}}}"
    spec = both.replace("{S: ", "{metricSource: {type: plimsoll, spec: ").replace("}}", "}}}")
    (found,) = parse(slo(f"ratioMetric: {{{spec}}}", "{target: 0.99}")).slos
    assert found.terms.components[0].events == Requests((), selector.parse("class=chat"))
    other = spec.replace("requests, where: 'class=chat'", "requests")
    assert "Give both the same where" in error(slo(f"ratioMetric: {{{other}}}", "{target: 0.99}"))
    wrong = spec.replace("class=chat", "class")
    assert "is no selector: class is no condition" in errors(slo(f"ratioMetric: {{{wrong}}}", "{target: 0.99}"))[0]


def test_a_ratio_may_have_several_objectives_each_a_promise_of_its_own() -> None:
    found = parse(slo(RATIO, "[{displayName: Basic, target: 0.9}, {targetPercent: 99.95}]")).slos
    assert [(str(one.promise), one.title) for one in found] == [
        ("slo(chat[0]) >= 90%", "chat: Basic"),
        ("slo(chat[1]) >= 99.95%", "chat: [1]"),
    ]
    assert found[1].target == Fraction("0.9995")


def test_references_are_followed_inside_the_file_in_any_order() -> None:
    text = slo().replace("indicator: {metadata: {name: own}, spec: {" + THRESHOLD + "}}", "indicatorRef: first-token")
    source = "{metricSourceRef: run, spec: {indicator: ttft, unit: ms}}"
    more = "alertPolicies: [{alertPolicyRef: p}]"
    loaded = parse(
        "\n---\n".join(
            [
                text + indent(more, "  "),
                other("SLI", "first-token", f"{{thresholdMetric: {{metricSource: {source}}}}}"),
                other("DataSource", "run", "{type: plimsoll}"),
                other("AlertPolicy", "p", policy("[{conditionRef: c}]", "[{targetRef: t}]")),
                other("AlertCondition", "c", CONDITION),
                other("AlertNotificationTarget", "t", "{target: email}"),
                other("Service", "web", "{description: The web.}"),
            ]
        )
    )
    assert loaded.warnings == ()
    assert loaded.slos[0].limits == (limit("ttft <= 200ms"),)
    assert loaded.slos[0].rules[0].factor == 2
    assert loaded.kinds == dict.fromkeys(
        ["SLO", "SLI", "DataSource", "AlertPolicy", "AlertCondition", "AlertNotificationTarget", "Service"], 1
    )


def test_a_list_of_objects_and_empty_documents_are_read_too() -> None:
    items = "\n".join("- " + indent(slo(name=name), "  ")[2:] for name in ("a", "b"))
    assert [one.name for one in parse(f"---\n---\n{items}\n---\n").slos] == ["a", "b"]


def test_slices_and_annotations() -> None:
    (found,) = parse(
        slo(
            RATIO,
            "{target: 0.95, timeSliceTarget: 0.9, timeSliceWindow: 5}",
            method="Timeslices",
            annotations="plimsoll.io/empty-slices: bad",
        )
    ).slos
    assert (found.terms.slice_ns, found.terms.empty) == (5 * MIN, "bad")
    assert found.terms.components[0].slice_target == Fraction(9, 10)
    half = parse(slo(RATIO, "{target: 0.95, timeSliceWindow: 0.5}", method="RatioTimeslices")).slos[0]
    assert half.terms.slice_ns == 30_000_000_000


def test_a_composite_has_an_indicator_in_each_objective() -> None:
    text = slo().replace("  indicator: {metadata: {name: own}, spec: {" + THRESHOLD + "}}\n", "")
    parts = (
        f"[{{target: 0.9, compositeWeight: 0.5, indicator: {{metadata: {{name: a}}, spec: {{{RATIO}}}}}}}, "
        f"{{target: 0.95, op: lte, value: 9, indicator: {{metadata: {{name: b}}, spec: {{{THRESHOLD}}}}}}}]"
    )
    (found,) = parse(text.replace("[{op: lte, value: 200, target: 0.99}]", parts)).slos
    assert [(part.title, part.weight, part.target) for part in found.terms.components] == [
        ("a", Fraction(1, 2), Fraction(9, 10)),
        ("b", Fraction(1), Fraction(19, 20)),
    ]
    assert found.target == Fraction(19, 20)


def test_metrics_of_another_system_are_checked_and_never_judged() -> None:
    prometheus = "thresholdMetric: {metricSource: {type: Prometheus, spec: {query: 'up{a=\"b\"}', any: [1, {x: y}]}}}"
    loaded = parse(slo(prometheus) + "\n---\n" + slo(name="ours"), "slo.yaml")
    assert [one.name for one in loaded.slos] == ["ours"]
    assert [(one.name, one.type) for one in loaded.outside] == [("chat", "Prometheus")]
    with pytest.raises(ObjectiveError, match=r"SLO chat: its metrics come from Prometheus, .* Bind it with"):
        loaded.to_judge()


def test_a_file_without_an_slo_promises_nothing() -> None:
    loaded = parse(other("Service", "web", "{}"))
    with pytest.raises(ObjectiveError, match="there is no SLO in it"):
        loaded.to_judge()


# -- durations ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ns", "says"),
    [
        ("1m", MIN, "a rolling 1 minute"),
        ("12h", 720 * MIN, "a rolling 12 hours"),
        ("28d", 28 * DAY, "a rolling 28 days"),
        ("4w", 28 * DAY, "a rolling 4 weeks"),
        ("1M", 30 * DAY, "a rolling 1 month"),
        ("1Q", 90 * DAY, "a rolling 1 quarter"),
        ("2Y", 730 * DAY, "a rolling 2 years"),
    ],
)
def test_durations(text: str, ns: int, says: str) -> None:
    (found,) = parse(slo(window=f"{{duration: {text}, isRolling: true}}")).slos
    assert (found.period_ns, found.period) == (ns, says)


def test_1m_is_a_minute_and_1_capital_m_a_month_with_a_warning() -> None:
    loaded = parse(slo(window="{duration: 1M, isRolling: true}"), "slo.yaml")
    assert loaded.warnings == (
        "slo.yaml:9: document 1 (SLO chat): spec.timeWindow[0].duration: is 1 month, not minutes. "
        "If minutes are meant, write 1m",
    )
    assert parse(slo(window="{duration: 1m, isRolling: true}")).warnings == ()


@pytest.mark.parametrize(
    "text", ["1", "0m", "m", "1s", "1D", "1 m", "-1m", "1.5h", "1h30m", "1:30", "99999Y", "''", "~"]
)
def test_what_is_no_duration(text: str) -> None:
    assert "spec.timeWindow[0].duration: is " in error(slo(window=f"{{duration: {text}, isRolling: true}}"))


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (3_024_000_000, "3.024 s"),
        (43.2 * MIN, "43.2 min"),
        (1008 * MIN, "16 h 48 min"),
        (120 * MIN, "2 h"),
        (3 * DAY, "3 d"),
    ],
)
def test_lengths_of_time_for_people(ns: float, text: str) -> None:
    assert span(Fraction(ns)) == text


# -- traps ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (slo(window="{duration: 30d}"), "says neither isRolling nor calendar"),
        (slo(window="{duration: 30d, isRolling: false}"), "not rolling and has no calendar"),
        (
            slo(window="{duration: 1d, isRolling: true, calendar: {startTime: 2022-01-01 12:00:00, timeZone: UTC}}"),
            "is rolling and has a calendar",
        ),
        (
            slo(window="{duration: 1d, calendar: {startTime: 2022-01-01, timeZone: UTC}}"),
            "calendar.startTime: is '2022-01-01'. Write date and time, 24 hours, no zone: 2026-01-01 00:00:00",
        ),
        (
            slo(window="{duration: 1d, calendar: {startTime: 2022-01-01 12:00:00, timeZone: Amerika/New_York}}"),
            "calendar.timeZone: is 'Amerika/New_York'. Did you mean America/New_York?",
        ),
        (slo(window="{duration: 1d, isRolling: true}, {duration: 2d, isRolling: true}"), "has 2 items. OpenSLO takes"),
        (slo(window=""), "has 0 items"),
        (slo(method="Occurences"), "budgetingMethod: is 'Occurences'. Did you mean Occurrences? Allowed:"),
        (slo(objective="{op: lte, value: 2}"), "has neither target nor targetPercent"),
        (slo(objective="{op: lte, value: 2, target: 0.9, targetPercent: 90}"), "has both target and targetPercent"),
        (slo(objective="{op: lte, value: 2, target: 99.5}"), "If percent is meant, write targetPercent"),
        (slo(objective="{op: lte, value: 2, target: 1}"), "no error budget is left"),
        (slo(objective="{op: lte, value: 2, target: 0}"), "that promises nothing"),
        (slo(objective="{op: lte, value: 2, target: '0.9'}"), "is '0.9', not a number"),
        (slo(objective="{op: lte, value: 2, target: .nan}"), "is nan, not a number"),
        (slo(objective="{op: lte, value: 2, targetPercent: 100}"), "no error budget is left"),
        (slo(objective="{value: 2, target: 0.9}"), "op: is missing: a thresholdMetric needs op and value"),
        (slo(objective="{op: lte, target: 0.9}"), "value: is missing"),
        (slo(objective="{op: le, value: 2, target: 0.9}"), "op: is 'le'. Did you mean lte?"),
        (slo(objective="{op: lte, value: -2, target: 0.9}"), "value: is below 0"),
        (slo(objective="{op: gte, value: 2, target: 0.9}"), "of ttft, lower is better, so >= promises nothing"),
        (slo(objective="{op: lte, value: 0, target: 0.9}"), "a time of 0 can't be kept"),
        (slo(objective="[]"), "objectives: is empty"),
        (
            slo(objective="[{op: lte, value: 2, target: 0.9}, {op: lte, value: 3, target: 0.9}]"),
            "has 2 objectives on one thresholdMetric. OpenSLO allows one",
        ),
        (slo(RATIO, "{value: 3, target: 0.9}"), "value: goes with a thresholdMetric only"),
        (slo(RATIO, "{target: 0.9, compositeWeight: 2}"), "compositeWeight: belongs to a composite"),
        (slo(RATIO, "{target: 0.9, timeSliceTarget: 0.9}"), "does not go with budgetingMethod Occurrences"),
        (slo(RATIO, "{target: 0.9, timeSliceWindow: 1m}"), "does not go with budgetingMethod Occurrences"),
        (slo(RATIO, "{target: 0.9, timeSliceTarget: 0.9}", method="Timeslices"), "timeSliceWindow: is missing"),
        (slo(RATIO, "{target: 0.9, timeSliceWindow: 1m}", method="Timeslices"), "timeSliceTarget: is missing"),
        (slo(RATIO, "{target: 0.9}", method="RatioTimeslices"), "timeSliceWindow: is missing"),
        (
            slo(RATIO, "{target: 0.9, timeSliceWindow: 1m, timeSliceTarget: 1}", method="RatioTimeslices"),
            "timeSliceTarget: does not go with budgetingMethod RatioTimeslices",
        ),
        (
            slo(RATIO, "{target: 0.9, timeSliceWindow: 1m, timeSliceTarget: 0}", method="Timeslices"),
            "timeSliceTarget: is 0. Give a share above 0, up to 1",
        ),
        (
            slo(RATIO, "{target: 0.9, timeSliceWindow: 0, timeSliceTarget: 1}", method="Timeslices"),
            "timeSliceWindow: is 0. A bare number is minutes",
        ),
        (
            slo(RATIO, "{target: 0.9, timeSliceWindow: 31d, timeSliceTarget: 1}", method="Timeslices"),
            "longer than the SLO's period",
        ),
        (slo().replace("openslo/v1", "openslo/v1alpha"), "Only openslo/v1 is read"),
        (slo().replace("kind: SLO", "kind: Slo"), "kind: is 'Slo'. Did you mean SLO?"),
        (slo().replace("name: chat", "name: Chat_1"), "metadata.name: is 'Chat_1'. A name has at most 63"),
        (slo().replace("name: chat", "name: " + "a" * 64), "A name has at most 63"),
        (slo().replace("service: web\n", "servise: web\n  service: web\n"), "unknown key. Did you mean service?"),
        (slo(more="description: " + "x" * 1051), "has 1051 characters. OpenSLO allows at most 1050"),
        (slo(annotations="plimsoll.io/production-rate: 100"), "is 100, not a text. Put it in quotes"),
        (slo(annotations="plimsoll.io/production-rate: 'fast'"), "Give events per second above 0"),
        (slo(annotations="plimsoll.io/production-rate: '1e-300'"), "Give events per second above 0"),
        (slo(RATIO, "{target: 0.9999999999}"), "nearer to 0 or 1 than any run can show"),
        (slo(RATIO, "{targetPercent: 1e-300}"), "nearer to 0 or 100 than any run can show"),
        (slo(annotations="plimsoll.io/empty-slice: bad"), "Did you mean plimsoll.io/empty-slices?"),
        (slo(annotations="a b: c"), "is no annotation"),
        (slo(more="indicatorRef: x"), "has both indicator and indicatorRef"),
        (slo(more="alertPolicies: [{alertPolicyRef: nope}]"), "there is no AlertPolicy named 'nope' in this file"),
        (slo(more="alertPolicies: [{}]"), "has neither alertPolicyRef nor kind, metadata, spec"),
        (slo() + "\n---\n" + slo(), "SLO chat exists already, in line 1. Rename one"),
        (slo(more="service: two"), "key service is given twice. Keep one of them"),
        (slo(more="1: two"), "key 1 is not a text. Put it in quotes"),
        (slo(more="<<: {a: b}"), "<<: merges are not read"),
        (slo(more="description: !!timestamp 2020-01-01"), "can't be read as timestamp"),
        ("a: [b", "not YAML: a comma is missing, or a bracket is opened and never closed with ']'"),
        ("a: *b", "not YAML: *b is an alias of a value that is not named (&b) before it"),
        ("\x00", "not YAML: "),
        ("", "is empty. Write objects of OpenSLO"),
        ("just text", "is 'just text', not a mapping"),
    ],
)
def test_every_trap_is_named_with_its_remedy(text: str, says: str) -> None:
    assert says in error(text)


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        ("{type: plimsoll, spec: {indicator: ttft}}", "spec.unit: is missing: objective.value is a bare number"),
        ("{type: plimsoll, spec: {indicator: ttft, unit: min}}", "spec.unit: is 'min'."),
        ("{type: plimsoll, spec: {indicator: output_tokens, unit: ms}}", "output_tokens has no unit: remove it"),
        ("{type: plimsoll, spec: {indicator: tfft, unit: ms}}", "is 'tfft'. Did you mean ttft?"),
        ("{type: plimsoll, spec: {indicator: ttft, unit: ms, when: x}}", "spec.when: unknown key"),
        ("{type: plimsoll}", "spec: is empty, not a mapping"),
        ("{type: Plimsoll, spec: {indicator: ttft, unit: ms}}", "Write plimsoll, in lower case"),
        ("{spec: {indicator: ttft, unit: ms}}", "has neither metricSourceRef nor type"),
        ("{metricSourceRef: nope, spec: {}}", "there is no DataSource named 'nope' in this file"),
    ],
)
def test_a_threshold_that_cannot_be_bound(metric: str, says: str) -> None:
    assert says in error(slo(f"thresholdMetric: {{metricSource: {metric}}}"))


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ("good: {S: {events: ok}}, total: {S: {events: ok}}", "failed requests would fall out of the denominator"),
        ("good: {S: {events: requests}}, total: {S: {events: requests}}", "these can't be the good ones"),
        ("good: {S: {events: errors}}, total: {S: {events: requests}}", "these can't be the good ones"),
        ("bad: {S: {events: ok}}, total: {S: {events: requests}}", "these can't be the bad ones"),
        ("bad: {S: {requests: ttft <= 1s}}, total: {S: {events: requests}}", "state the good ones instead"),
        ("good: {S: {events: ok}}", "has good. Give good and total, or bad and total, or raw with rawType"),
        ("good: {S: {events: ok}}, bad: {S: {events: errors}}, total: {S: {events: requests}}", "has good and bad"),
        ("raw: {S: {events: ok}}", "rawType and raw belong together"),
        ("raw: {S: {events: ok}}, rawType: good", "rawType: is 'good'"),
        ("good: {S: {requests: p99(ttft) <= 1s}}, total: {S: {events: requests}}", "is about the run"),
        ("good: {S: {requests: ttft > 1s}}, total: {S: {events: requests}}", "lower is better"),
        ("good: {S: {requests: []}}, total: {S: {events: requests}}", "is empty. Write limits"),
        ("good: {S: {events: ok, requests: ttft < 1s}}, total: {S: {events: requests}}", "has both events and"),
    ],
)
def test_a_ratio_that_cannot_be_bound(parts: str, says: str) -> None:
    spec = parts.replace("{S: ", "{metricSource: {type: plimsoll, spec: ").replace("}}", "}}}")
    assert says in errors(slo(f"ratioMetric: {{{spec}}}", "{target: 0.99}"))[0]


def test_a_data_source_and_a_type_that_disagree() -> None:
    metric = "thresholdMetric: {metricSource: {metricSourceRef: d, type: plimsoll, spec: {indicator: ttft, unit: ms}}}"
    said = error(slo(metric), other("DataSource", "d", "{type: Prometheus, connectionDetails: {url: x}}"))
    assert "is 'plimsoll', but the DataSource d is 'Prometheus'" in said


def test_composites_by_slices_have_one_clock_and_one_target() -> None:
    text = slo(method="Timeslices").replace("  indicator: {metadata: {name: own}, spec: {" + THRESHOLD + "}}\n", "")
    part = "indicator: {{metadata: {{name: {0}}}, spec: {{{1}}}}}, timeSliceTarget: 0.9"
    parts = (
        f"[{{target: 0.9, timeSliceWindow: 1m, {part.format('a', RATIO)}}}, "
        f"{{target: 0.8, timeSliceWindow: 2m, {part.format('b', RATIO)}}}]"
    )
    found = errors(text.replace("[{op: lte, value: 200, target: 0.99}]", parts))
    assert any("A composite has one slice window" in line for line in found)
    assert any("promises 80%, the first objective 90%" in line for line in found)
    mixed = slo(objective=f"{{target: 0.9, {part.format('a', RATIO).partition(', timeSlice')[0]}}}")
    assert "Give one here, or one in each" in error(mixed)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (policy("[{conditionRef: a}, {conditionRef: b}]"), "has 2 conditions. OpenSLO allows exactly one"),
        (policy("[]"), "has 0 conditions"),
        (policy("[{conditionRef: nope}]"), "there is no AlertCondition named 'nope'"),
        (policy(targets="[]"), "notificationTargets: is empty"),
        (policy(targets="[{targetRef: nope}]"), "there is no AlertNotificationTarget named 'nope'"),
        (policy(INLINE.replace("burnrate", "burn")), "condition.kind: is 'burn'"),
        (policy(INLINE.replace("threshold: 2", "threshold: 0")), "threshold: is not above 0"),
        (policy(INLINE.replace("lookbackWindow: 1h", "lookbackWindow: 1")), "lookbackWindow: is 1, not a duration"),
        (policy(INLINE.replace("severity: page, ", "")), "severity: is missing"),
        (policy(when="alertWhenBreaching: 'yes'"), "is 'yes', not true or false"),
    ],
)
def test_alerts_that_cannot_be_read(spec: str, says: str) -> None:
    assert any(says in line for line in errors(other("AlertPolicy", "p", spec)))


@pytest.mark.parametrize(
    ("documents", "says"),
    [
        ([slo(RATIO, "{op: gt, target: 0.9}")], "op: is ignored: it goes with a thresholdMetric"),
        ([slo(RATIO.replace("counter: true", "counter: false"), "{target: 0.9}")], "counter: is not used"),
        ([slo(annotations="plimsoll.io/empty-slices: bad")], "is not used: Occurrences has no slices"),
        ([slo().replace("  timeWindow: [{duration: 30d, isRolling: true}]\n", "")], "has no timeWindow, so budgets"),
        ([slo(), other("Service", "webb", "{}")], "no Service named 'web' in this file. Did you mean webb?"),
        (
            [other("AlertPolicy", "p", policy(INLINE.replace("gt", "lte")))],
            "op: fires while the burn rate is at or below",
        ),
        ([other("AlertPolicy", "p", policy(INLINE.replace("gt", "lt")))], "To alert on trouble write op: gt"),
        ([other("AlertPolicy", "p", policy(INLINE.replace("op: gt, ", "")))], "has no op; read as gt"),
        ([other("AlertPolicy", "p", policy(when="alertWhenBreaching: false"))], "alerts on nothing"),
        ([other("AlertPolicy", "p", policy(when="alertWhenNoData: true"))], "does not alert when its condition holds"),
        ([other("AlertPolicy", "p", policy(INLINE.replace("1h", "1M")))], "If minutes are meant, write 1m"),
        ([other("DataSource", "d", "{type: plimsoll, connectionDetails: {}}")], "connectionDetails: is not used"),
    ],
)
def test_what_is_allowed_and_probably_not_meant_is_a_warning(documents: list[str], says: str) -> None:
    (warning,) = parse("\n---\n".join(documents)).warnings
    assert says in warning


def test_all_mistakes_of_a_file_come_at_once_each_with_line_object_and_key() -> None:
    found = errors(
        slo(objective="{op: le, value: 2, target: 2}"), other("SLI", "x", "{}"), "kind: Service\nmetadata: {name: A}"
    )
    assert found == [
        "slo.yaml:11: document 1 (SLO chat): spec.objectives[0].target: is 2. Give a number above 0 and below 1. "
        "If percent is meant, write targetPercent",
        "slo.yaml:11: document 1 (SLO chat): spec.objectives[0].op: is 'le'. Did you mean lte? Allowed: lte, gte, "
        "lt, gt",
        "slo.yaml:18: document 2 (SLI x): spec: has neither thresholdMetric nor ratioMetric. Give exactly one",
        "slo.yaml:21: document 3 (Service A): apiVersion: is missing. Add it",
        "slo.yaml:22: document 3 (Service A): metadata.name: is 'A'. A name has at most 63 lower-case letters, "
        "digits and dashes, and begins and ends with a letter or digit",
    ]


def test_aliases_that_multiply_and_endless_nesting_are_refused() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(9)
    )
    assert "nested too deep, or its aliases" in error(bomb)
    assert "nested too deep" in error("a: &a [*a]")
    assert "nested too deep" in error("[" * 5000)


@pytest.mark.parametrize("weight", ["1e308", "1e-300"])
def test_weights_that_no_arithmetic_survives_are_refused(weight: str) -> None:
    found = errors(slo(objective=f"{{op: lte, value: 200, target: 0.99, compositeWeight: {weight}}}"))
    assert any("compositeWeight: is not from 1e-6 to 1e6" in line for line in found)


def test_a_name_cannot_command_the_terminal() -> None:
    assert "\x1b" not in error(slo().replace("name: chat", 'name: "\\e[31mred"'))


def test_a_file_is_told_from_one_of_the_short_grammar(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.yaml", tmp_path / "slo.yaml"
    ours.write_text("objectives:\n  - 'p99(ttft) <= 200ms'\n")
    theirs.write_text("# comment\n" + slo())
    assert not openslo.recognise(ours)
    assert openslo.recognise(theirs)
    assert not openslo.recognise(tmp_path / "none.yaml")
    assert openslo.load(theirs).text == theirs.read_text()
    with pytest.raises(ObjectiveError, match="can't be read"):
        openslo.load(tmp_path / "none.yaml")
    theirs.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ObjectiveError, match="is not UTF-8"):
        openslo.load(theirs)


# -- in words -------------------------------------------------------------------------------------------------


def test_a_promise_in_plain_words() -> None:
    (found,) = parse(slo(objective="{op: lte, value: 200, target: 0.999}")).slos
    assert words.lines(found) == [
        ("promise", "99.9% of all requests have ttft <= 200ms; a failed one is bad"),
        ("budget", "0.1%: 43.2 min of total failure in a rolling 30 days"),
    ]
    sliced = parse(
        slo(
            RATIO,
            "{target: 0.95, timeSliceTarget: 0.9, timeSliceWindow: 1m}",
            window="{duration: 2w, isRolling: true}",
            method="Timeslices",
        )
    ).slos[0]
    assert words.lines(sliced) == [
        ("promise", "95% of all slices of 1 min are good: 90% or more of their requests succeed"),
        ("budget", "5%: 1008 bad slices, 16 h 48 min, in a rolling 2 weeks"),
        ("empty slices", "left out"),
    ]


def test_the_starter_is_accepted_without_a_warning() -> None:
    loaded = parse(openslo.starter())
    assert loaded.warnings == ()
    assert [slo.name for slo in loaded.to_judge()] == ["chat-first-token", "chat-smooth", "chat-available"]


# -- a key with nothing below it ------------------------------------------------------------------------------


@pytest.mark.parametrize("nothing", ["", " # a comment only", " ~", " null", " []"])
def test_alert_policies_with_nothing_below_them_are_none_as_in_the_official_examples(nothing: str) -> None:
    (found,) = parse(slo(more=f"alertPolicies:{nothing}")).slos
    assert found.rules == ()
    assert found == parse(slo()).slos[0]


def test_other_optional_lists_and_mappings_may_be_empty_too() -> None:
    text = slo().replace("  timeWindow: [{duration: 30d, isRolling: true}]\n", "  timeWindow:\n")
    assert any("has no timeWindow" in one for one in parse(text).warnings)
    (found,) = parse(slo().replace("  annotations: {}\n", "  annotations:\n  labels:\n")).slos
    assert found == parse(slo()).slos[0]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (slo(more="alertPolicies: page"), "spec.alertPolicies: is 'page', not a list"),
        (slo(more="alertPolicies: {}"), "spec.alertPolicies: is a mapping, not a list"),
        (slo(more="alertPolicies: [~]"), "spec.alertPolicies[0]: is empty, not a mapping"),
        (slo().replace("  objectives: [", "  objectives: # ["), "spec.objectives: is empty, not a list"),
        (other("AlertPolicy", "p", policy(conditions="~")), "spec.conditions: is empty, not a list"),
        (other("AlertPolicy", "p", policy(targets="~")), "spec.notificationTargets: is empty, not a list"),
    ],
)
def test_what_is_needed_or_is_no_list_is_still_refused(document: str, said: str) -> None:
    assert any(said in one for one in errors(document))
