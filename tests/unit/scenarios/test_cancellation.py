"""Which queries are dropped, and when: drawn from the seed and the query's id alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plimsoll.scenarios import spec
from plimsoll.scenarios.plan import cancellation
from plimsoll.scenarios.plan.cancellation import CancelSection, delays
from plimsoll.scenarios.plan.plan import Stop
from plimsoll.scenarios.plugins import kinds

MS = 1_000_000
IDS = np.arange(20_000)
#: Of the first sixty queries of seed 42, those that one in ten drops.
FIRST = [1, 15, 19, 23, 24, 36, 43, 44, 51]


def section(**given: Any) -> CancelSection:
    return CancelSection.model_validate({"share": 0.1, "after": "500ms", **given})


def test_about_the_share_is_chosen_and_each_after_the_delay() -> None:
    found = delays(section(), 42, IDS)
    assert set(found.tolist()) == {-1, 500 * MS}
    assert 0.09 < (found >= 0).mean() < 0.11
    assert (delays(section(share=1.0), 42, IDS) >= 0).all()


def test_the_choice_is_independent_between_neighbours() -> None:
    chosen = (delays(section(share=0.5), 42, IDS) >= 0).astype(float) - 0.5
    for lag in (1, 2, 7, 1024):
        assert abs(np.mean(chosen[lag:] * chosen[:-lag])) < 0.01


def test_an_id_has_its_fate_wherever_it_is_sent_from() -> None:
    found = delays(section(), 42, IDS)
    assert (delays(section(), 42, IDS[::-1]) == found[::-1]).all()
    assert (delays(section(), 42, IDS[3::7]) == found[3::7]).all()
    assert (delays(section(), 43, IDS) != found).any()
    assert delays(section(), 42, np.arange(12)).tolist() == found[:12].tolist()


def test_the_draw_never_changes() -> None:
    """Runs are told apart by it for ever: these ids of seed 42 are the ones."""
    assert np.flatnonzero(delays(section(), 42, np.arange(60)) >= 0).tolist() == FIRST


@pytest.mark.parametrize(
    ("after", "mean", "least", "most"),
    [
        ({"dist": "uniform", "min": "100ms", "max": "300ms"}, 200, 100, 300),
        ({"dist": "exponential", "mean": "200ms"}, 200, 0, 10_000),
    ],
)
def test_delays_may_be_drawn(after: dict[str, str], mean: float, least: float, most: float) -> None:
    found = delays(section(share=1, after=after), 42, IDS) / MS
    assert found.mean() == pytest.approx(mean, rel=0.03)
    assert least <= found.min() <= found.max() <= most
    half = delays(section(share=0.5, after=after), 42, IDS) / MS
    kept = half >= 0
    assert (half[kept] == found[kept]).all(), "a smaller share drops some of the same queries, at the same times"


def test_shards_and_closed_loops_come_to_the_same_choice() -> None:
    for kind, params in (("server", {"rate": 50}), ("concurrency", {"concurrency": 6})):
        model = kinds()[kind]
        plan = model.build(model.params(**params), Stop(200, 0), 5, 42)
        whole = cancellation.rows(section(), 42, plan)
        assert whole is not None
        for i in range(3):
            shard = plan.shard(i, 3)
            mine = cancellation.rows(section(), 42, shard)
            ids = shard.query_id if not plan.cyclic else shard.first_id + shard.id_step * np.arange(900)
            chosen = cancellation.chosen(section(), 42, plan, ids)
            row = np.searchsorted(shard.query_id, ids) if not plan.cyclic else ids % shard.n_queries
            assert mine is not None
            assert ((mine[row] >= 0) == chosen).all()
    assert cancellation.rows(None, 42, plan) is None
    assert not cancellation.chosen(None, 42, plan, IDS).any()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"share": 0, "after": "1s"}, "cancel.share: "),
        ({"share": 1.5, "after": "1s"}, "cancel.share: "),
        ({"share": 0.1}, "cancel.after: is missing"),
        ({"share": 0.1, "after": "0s"}, "cancel.after: "),
        ({"share": 0.1, "after": "soon"}, "cancel.after: .*'soon' is not a duration"),
        ({"share": 0.1, "after": {"dist": "normal"}}, "cancel.after: .*uniform, exponential"),
        ({"share": 0.1, "after": {"dist": "uniform", "min": "2s", "max": "1s"}}, "min is above max. Swap them"),
        ({"share": 0.1, "after": "90s"}, "cancel.after 90s is not below timeout 1m"),
        ({"share": 0.1, "after": "1s", "of": "all"}, "cancel.of: "),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(given: dict[str, Any], said: str) -> None:
    with pytest.raises(spec.ScenarioError, match=said):
        spec.parse({"kind": "server", "cancel": given}, "f.yaml")


def test_it_does_not_go_with_what_it_would_spoil() -> None:
    for given, said in (
        ({"kind": "offline"}, "kind offline has one"),
        ({"kind": "server", "mode": "accuracy"}, "mode accuracy compares"),
    ):
        with pytest.raises(spec.ScenarioError, match=said):
            spec.parse({**given, "cancel": {"share": 0.1, "after": "1s"}}, "f.yaml")


def test_a_scenario_with_it_goes_through_a_file_and_back() -> None:
    for after in ("1s", {"dist": "exponential", "mean": "2s"}, {"dist": "uniform", "min": "0s", "max": "1s"}):
        made = spec.parse({"kind": "server", "cancel": {"share": 0.1, "after": after}})
        assert spec.parse(made.to_mapping()) == made
        assert made.to_mapping()["cancel"]["after"] == after
