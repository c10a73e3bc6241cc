"""What a prefix cache had, beside what it could have had: the same shares as counted by hand, on every page."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plimsoll.reports.blocks.terminal import plain
from plimsoll.reports.documents.run import render_terminal
from plimsoll.reports.format import formats
from plimsoll.reports.report import Report, build
from plimsoll.slo.judge import judge
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.promises import Promises
from plimsoll.slo.records.records import Status, TokensFrom, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts

MS = 1_000_000
N = 200


def report(
    slo: str = "mean(cached_share) >= 0.5", facts: dict[str, Any] | None = None, n_in_from: int = 0, **labels: Any
) -> Report:
    """Every tenth request fails; prompts have 100 and 300 tokens in turn."""
    due = np.arange(N) * MS
    given = {name: values if isinstance(values, list) else [values] * N for name, values in labels.items()}
    records = from_columns(
        N, due_ns=due, ready_ns=due, sent_ns=due, first_byte_ns=due + MS, done_ns=due + 2 * MS,
        status=np.where(np.arange(N) % 10 == 9, int(Status.TIMEOUT), 0), n_in=np.where(np.arange(N) % 2, 300, 100),
        labels=given or None, n_in_from=n_in_from,
    )  # fmt: skip
    known = GeneratorFacts(open_loop=True, planned=N, elapsed_ns=10**10, **(facts or {}))
    return build({}, {}, records, judge(records, known, Promises((parse(slo),))))


def turns(first: int, later: int) -> list[int]:
    return [first if i % 4 < 2 else later for i in range(N)]


def test_shares_are_of_all_prompt_tokens_of_successes_and_of_each_turn() -> None:
    found = report(cached_tokens=turns(0, 50), ideal_cached_tokens=turns(0, 80), turn=turns(1, 2))
    assert found.prefix_cache is not None
    ok = [i for i in range(N) if i % 10 != 9]
    tokens = sum(300 if i % 2 else 100 for i in ok)
    whole = found.prefix_cache.whole
    assert (whole.requests, whole.prompt_tokens) == (len(ok), tokens)
    assert whole.cached_share == pytest.approx(sum(turns(0, 50)[i] for i in ok) / tokens, abs=1e-6)
    assert whole.ideal_share == pytest.approx(sum(turns(0, 80)[i] for i in ok) / tokens, abs=1e-6)
    first, second = (found.prefix_cache.by["turn"][turn] for turn in ("1", "2"))
    assert (first.cached_share, first.ideal_share) == (0, 0)
    assert second.cached_share == pytest.approx(second.ideal_share * 50 / 80, abs=1e-5)  # type: ignore[operator]
    text = plain(render_terminal(found, {}, 100)).decode()
    assert "Prefix cache" in text
    assert "62.5 %" in text  # of the ideal
    assert "Prefix cache" in formats()["html"].render(found).decode()


def test_what_nobody_said_is_not_made_up() -> None:
    ideal = report(ideal_cached_tokens=60).prefix_cache
    assert ideal is not None
    assert (ideal.whole.cached_share, ideal.whole.ideal_share is not None) == (None, True)
    told = report(cached_tokens=[30, None] * (N // 2)).prefix_cache
    assert told is not None
    assert (told.whole.requests, told.whole.cached_share, told.whole.ideal_share) == (100, 0.3, None)
    assert report(cached_tokens=0).prefix_cache is None
    assert "prefix_cache" not in report().document()


def test_the_cached_share_is_an_objective() -> None:
    verdict = report("p50(cached_share{turn>1}) >= 0.1", cached_tokens=turns(0, 50), turn=turns(1, 2)).verdict
    assert [(one.outcome, one.observed) for one in verdict.objectives] == [("PASS", pytest.approx(50 / 300))]


@pytest.mark.parametrize(("told", "warned"), [(4500, True), (1099, False), (901, False), (800, True)])
def test_prompts_of_another_length_than_planned_are_told_of(told: int, warned: bool) -> None:
    found = report(facts={"planned_tokens": 1000, "told_tokens": told})
    said = [text for text in found.warnings if "times the tokens of the plan" in text]
    assert bool(said) == warned
    if told == 4500:
        assert said == [
            "prompts had 4.5 times the tokens of the plan: 4,500 by the endpoint's count, 1,000 planned. Its tokenizer "
            "is another one: measure with --calibrate-tokens, or set source.tokens_per_word"
        ]


def test_more_cached_tokens_than_the_prompt_has_are_believed_nowhere_and_told_of_once() -> None:
    """Every second prompt of 100 tokens is said to have had 101 of them cached; of 300 tokens 150 are no wonder."""
    usage = int(TokensFrom.USAGE)
    cached = [150 if i % 2 else 101 if i % 4 else 50 for i in range(N)]
    found = report(cached_tokens=cached, n_in_from=usage)
    believed = [i for i in range(N) if i % 10 != 9 and cached[i] != 101]
    false = sum(1 for i in range(N) if i % 10 != 9 and cached[i] == 101)
    assert found.prefix_cache is not None
    whole = found.prefix_cache.whole
    assert whole.requests == len(believed)
    tokens = sum(300 if i % 2 else 100 for i in believed)
    assert whole.cached_share == pytest.approx(sum(cached[i] for i in believed) / tokens, abs=1e-6)
    metric = found.metrics["cached_share"]
    assert (metric.missing, metric.max) == (false, 0.5)
    (said,) = [text for text in found.warnings if "cached" in text]
    assert said.startswith(f"of {false} answers the server says that more of the prompt was cached than")
