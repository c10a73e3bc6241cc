"""What a report says of an overload in words."""

from __future__ import annotations

import pytest

from plimsoll.reports.blocks.document import Table
from plimsoll.reports.sections.overload import AfterPart, OverloadPart, StepPart, blocks, sentence
from tests.unit.reports.made_reports import every, texts

S = 1_000_000_000


def after(state: str, back_s: float | None, waiting: tuple[int, int] = (90, 30)) -> AfterPart:
    back_ns = None if back_s is None else round(back_s * S)
    told = {"state": state, "back_ns": back_ns, "since_ns": 5 * S, "until_ns": 25 * S, "waiting": waiting}
    return AfterPart.model_validate(told)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (after("recovered", 0), "within its objective at once."),
        (after("recovered", 2.5), "within its objective 2.50 s later."),
        (after("draining", None), "still broken 20 s after the load had gone, with ever less that waits (90 requests "),
        (after("draining", None), "30 then): 5.0 s more at this pace."),
        (
            after("metastable", None, (90, 95)),
            "METASTABLE: still broken 20 s after the load had gone, and what waits got",
        ),
        (after("unclear", None), "is not shown. Send for longer then."),
    ],
)
def test_what_became_of_it_is_one_sentence(part: AfterPart, said: str) -> None:
    assert said in sentence(part)


def test_a_row_has_what_its_step_was_like_and_a_column_for_each_class() -> None:
    none = {"refused": 0.0, "refusal_ns": None, "admitted": 1.0, "classes": {"paid": 1.0, "free": 0.5}}
    steps = [
        StepPart(name="x1", offered_per_s=40, good_per_s=40, retained=1.0, **none),  # type: ignore[arg-type]
        StepPart.model_validate({**none, "name": "x3", "offered_per_s": 120, "good_per_s": 30.5, "retained": 0.7625,
                                 "refused": 1.0, "refusal_ns": 7_000_000, "admitted": None, "classes": {}}),
    ]  # fmt: skip
    (shown,) = every(blocks(OverloadPart(steps=steps, after=None), None), Table)
    assert [texts(row) for row in shown.rows] == [
        ["x1", "40", "40", "100 %", "0 %", "–", "100 %", "100 %", "50 %"],
        ["x3", "120", "30.5", "76.2 %", "100 %", "7.00 ms", "–", "–", "–"],
    ]
    assert [column.head for column in shown.columns][-2:] == ["paid good", "free good"]
