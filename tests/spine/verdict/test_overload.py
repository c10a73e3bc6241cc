"""What more than it can do makes of an endpoint that is planted: quotients whose bounds hold the truth as often as they
say, and the four things that it can be when the load has gone.
"""

from __future__ import annotations

import numpy as np
import pytest

from plimsoll.slo.objectives.objective import ObjectiveError, parse
from plimsoll.slo.objectives.objective_verdict import ObjectiveVerdict
from plimsoll.slo.objectives.quantified import holm
from plimsoll.slo.objectives.sentence import sentence
from plimsoll.slo.records.records import Records, Status, from_columns
from plimsoll.slo.verdict import overload, recovery

S, MS = 1_000_000_000, 1_000_000
LIMIT = parse("latency <= 300ms")


def records_of(due: np.ndarray, done: np.ndarray, **labels: list[str | None]) -> Records:
    times = {"due_ns": due, "ready_ns": due, "sent_ns": due, "first_byte_ns": done, "first_token_ns": done}
    return from_columns(len(due), **times, done_ns=done, labels=labels or None, n_in=1, n_out=1)  # type: ignore[arg-type]


def ladder(good_per_s: dict[str, tuple[float, float]], step_s: float, seed: int) -> Records:
    """Poisson arrivals of each phase, (offered, good) per second of which are good by lot."""
    rng, due, good, phase = np.random.default_rng(seed), [], [], []
    for place, (name, (offered, served)) in enumerate(good_per_s.items()):
        n = rng.poisson(offered * step_s)
        due.append(np.sort((place + rng.random(n)) * step_s * S).astype(np.int64))
        good.append(rng.random(n) < served / offered)
        phase += [name] * n
    at = np.concatenate(due)
    return records_of(at, at + np.where(np.concatenate(good), 50, 900) * MS, phase=phase)


def judged(records: Records, *texts: str) -> tuple[ObjectiveVerdict, ...]:
    objectives, (beside,) = overload.split([LIMIT, *map(parse, texts)])
    assert objectives == (LIMIT,)
    return beside.judge(records, "0.95")


SHED = {"x0.5": (50.0, 50.0), "x1": (100.0, 99.0), "x3": (300.0, 60.0)}


def test_bounds_of_what_is_retained_hold_the_truth() -> None:
    """Of the schedule as it was sent: how many come is no part of the endpoint's doing."""
    wrong = 0
    for seed in range(300):
        made = ladder(SHED, 10, seed)
        every = np.ones(len(made), np.bool_)
        sent = {lot.name: lot.per_s for lot in overload.lots("phase", made, every, every)}
        truth = sent["x3"] * 0.2 / max(sent["x1"] * 0.99, sent["x0.5"])
        (one,) = judged(made, "retained(good{phase=x3}) >= 60%")
        assert one.interval[0] <= one.observed <= one.interval[1]
        wrong += not one.interval[0] <= truth <= one.interval[1]
    assert wrong <= 300 * 0.05


@pytest.mark.parametrize(("share", "outcome"), [("40%", "PASS"), ("60%", "INCONCLUSIVE"), ("90%", "FAIL")])
def test_what_is_retained_has_three_values(share: str, outcome: str) -> None:
    (one,) = judged(ladder(SHED, 20, 1), f"retained(good{{phase=x3}}) >= {share}")
    assert one.outcome == outcome
    assert one.observed == pytest.approx(60 / 99, abs=0.08)
    assert (one.n_needed == 0) == (outcome != "INCONCLUSIVE")
    assert holm([one, one, one], "0.95")[0].outcome == outcome, "a FAIL stands among others"


def test_a_longer_run_decides_what_one_asked_for_more_requests() -> None:
    (short,) = judged(ladder(SHED, 4, 3), "retained(good{phase=x3}) >= 55%")
    assert short.outcome == "INCONCLUSIVE"
    assert short.n_needed is not None
    assert f"{short.n_needed:,} in all would decide" in sentence(short)
    (longer,) = judged(ladder(SHED, 4 * 2 * short.n_needed / short.n, 3), "retained(good{phase=x3}) >= 55%")
    assert longer.outcome == "PASS"


@pytest.mark.parametrize("brief_ms", [[2_000], [2_000, 2_001]])
def test_a_phase_of_a_handful_of_requests_has_no_rate_and_is_nobodys_best(brief_ms: list[int]) -> None:
    """A fault's ``during`` is some ms long: by its one good request it got nothing done, by two close ones the most."""
    due = np.concatenate([np.arange(199) * 10, brief_ms, 2_010 + np.arange(400) * 10]) * MS
    phase = ["before"] * 199 + ["during"] * len(brief_ms) + ["after"] * 400
    texts = [f"retained(good{{phase={one}}}) >= 20%" for one in ("during", "during|after", "after")]
    during, both, after = judged(records_of(due, due + 50 * MS, phase=phase), *texts)
    assert (during.outcome, both.outcome) == ("INCONCLUSIVE", "INCONCLUSIVE")
    assert "each of 10 requests or more, and there is before, after" in during.detail
    assert (after.outcome, after.observed) == ("PASS", pytest.approx(1.0))


def test_of_several_phases_the_least_counts_and_nothing_good_is_nothing() -> None:
    dead = {**SHED, "x3": (300.0, 0.0)}
    one, two = judged(ladder(dead, 10, 1), "retained(good{phase=x3}) >= 50%", "retained(good{phase=x1|x3}) >= 50%")
    assert (one.outcome, one.observed, two.observed) == ("FAIL", 0, 0)
    (none,) = judged(ladder(dict.fromkeys(SHED, (100.0, 0.0)), 10, 1), "retained(good{phase=x3}) >= 50%")
    assert (none.outcome, none.n) == ("INCONCLUSIVE", 0)


@pytest.mark.parametrize(("share", "outcome"), [("30%", "PASS"), ("50%", "INCONCLUSIVE"), ("80%", "FAIL")])
def test_fairness_is_the_worst_class_beside_the_best(share: str, outcome: str) -> None:
    rng, n = np.random.default_rng(4), 3_000
    due = np.arange(n, dtype=np.int64) * 10 * MS
    paid = rng.random(n) < 0.3
    good = rng.random(n) < np.where(paid, 0.9, 0.45)
    labels = {"class": ["paid" if one else "free" for one in paid], "phase": ["x3"] * n}
    made = records_of(due, due + np.where(good, 50, 900) * MS, **labels)  # type: ignore[arg-type]
    one, two = judged(made, f"fairness(good) >= {share}", f"fairness(good{{phase=x3}}) >= {share}")
    assert one.outcome == two.outcome == outcome
    assert one.observed == two.observed == pytest.approx(0.5, abs=0.06)
    assert "limit" in sentence(one)


# -- afterwards --------------------------------------------------------------------------------------------------------


def queue(*offered: tuple[float, float]) -> Records:
    """A single server of 100 per second, first come first served, under (per second, seconds) one after another."""
    rng, due, at, free = np.random.default_rng(9), [], 0.0, 0.0
    for rate, for_s in offered:
        due.append(np.sort(at + rng.random(rng.poisson(rate * for_s)) * for_s))
        at += for_s
    times = np.concatenate(due)
    done = np.empty(len(times))
    for place, time in enumerate(times):
        done[place] = free = max(free, time) + 0.01
    return records_of((times * S).astype(np.int64), (done * S).astype(np.int64))


def after(made: Records, since_s: float) -> tuple[str, int, tuple[int, int]]:
    _, (spells,) = recovery.split(
        [LIMIT, parse("recovered(ratio(good) >= 90%) <= 5s after x3")], {"x3": int(since_s * S)}
    )
    (one,) = spells.judge(made, "0.95")
    return overload.aftermath(made, one, int(since_s * S))


def test_a_queue_that_has_time_to_empty_has_recovered() -> None:
    state, until_ns, (_, end) = after(queue((50, 5), (150, 5), (50, 60)), 10)
    assert (state, end < 10) == ("recovered", True)
    assert until_ns / S == pytest.approx(70, abs=0.5)


def test_a_queue_that_still_empties_is_draining() -> None:
    state, _, (halfway, end) = after(queue((50, 5), (300, 20), (50, 20)), 25)
    assert state == "draining"
    assert halfway - end > 300


def test_what_everyone_waits_for_in_vain_and_goes_on_to_is_metastable() -> None:
    due = queue((50, 40))["due_ns"]
    state, _, (halfway, end) = after(records_of(due, due + np.where(due > 5 * S, 2 * S, 10 * MS)), 20)
    assert state == "metastable"
    assert abs(halfway - end) < 60


def test_a_queue_that_emptied_shortly_before_the_end_is_not_clear() -> None:
    assert after(queue((50, 5), (300, 5), (50, 23)), 10)[0] == "unclear"


def test_what_was_never_sent_is_no_sign_of_the_endpoint() -> None:
    due = np.arange(1_000, dtype=np.int64) * 20 * MS
    made = records_of(due, due + 50 * MS)
    status = np.where(due > 12 * S, Status.UNSENT, Status.OK)
    assert after(made, 10)[0] == "recovered"
    assert after(from_columns(1_000, **{**made.columns, "status": status}), 10)[0] == "unclear"  # type: ignore[arg-type]


def test_what_breaks_in_the_last_moment_is_not_clear() -> None:
    due = np.arange(1_000, dtype=np.int64) * 20 * MS
    assert after(records_of(due, due + np.where(due > 19_500 * MS, 900, 50) * MS), 10)[0] == "unclear"


# -- the grammar -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["retained(good{class=chat,phase=x1.5|x3}) >= 80%", "fairness(good) >= 50%"])
def test_print_of_parse_is_the_identity(text: str) -> None:
    assert str(parse(text)) == text
    assert parse(str(parse(text))) == parse(text)
    assert set(parse(text).labels) >= {"phase" if "retained" in text else "class"}
    assert not parse(text).of_all


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("retained(good) >= 80%", "is of a phase by its name"),
        ("retained(good{phase!=x1}) >= 80%", "is of a phase by its name"),
        ("each phase: fairness(good) >= 80%", "is of a phase by its name"),
        ("retained(ttft{phase=x3}) >= 80%", "retained is of good requests"),
        ("retained(good{phase=x3}) <= 80%", "higher is better"),
        ("retained(good{phase=x3}) >= 80ms", "unit ms does not fit"),
        ("fairness(good) >= 50% over 28d", "has no error budget"),
    ],
)
def test_what_can_t_be_retained_is_refused_with_what_to_write(text: str, says: str) -> None:
    with pytest.raises(ObjectiveError, match=says):
        parse(text)
