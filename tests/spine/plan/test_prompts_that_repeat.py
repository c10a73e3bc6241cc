"""Prompts that begin alike or repeat: the shares asked for are the shares that come, and a cache without limit."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.scenarios.plugins import sources
from plimsoll.scenarios.samples.prefixes import Chain, Unlimited, drawn
from plimsoll.scenarios.samples.words import MARKER, marked
from plimsoll.scenarios.spec import ScenarioError, parse, with_flags


def source(**params: Any) -> Any:
    mapping = {"kind": "server", "source": {"kind": "synthetic_text", **params}}
    return parse(mapping, "f.yaml").source_object()


def test_every_prompt_begins_with_the_text_of_its_group_and_goes_on_by_itself() -> None:
    made = source(prompt_tokens=26, count=300, shared={"groups": 5, "tokens": 130})
    words = [str(made.payload(i).prompt).split() for i in range(300)]
    assert {len(one) for one in words} == {120}
    assert len({tuple(one[:100]) for one in words}) == 5
    assert len({tuple(one[100:]) for one in words}) == 300
    assert {made.payload(i).n_in for i in range(300)} == {156}


def test_one_group_in_front_is_the_shared_prefix_that_there_was() -> None:
    old = source(prompt_tokens=65, shared_prefix_tokens=26, unit="bytes", count=3)
    new = source(prompt_tokens=39, shared={"tokens": 26}, unit="bytes", count=3)
    assert [old.payload(i).prompt for i in range(3)] == [new.payload(i).prompt for i in range(3)]


def test_popularity_is_zipfs_law() -> None:
    counts = np.bincount(drawn("zipf 1.1", 20, 7, 200_000), minlength=20)
    wanted = np.arange(1, 21) ** -1.1
    assert np.abs(counts / 200_000 - wanted / wanted.sum()).max() < 0.005
    even = np.bincount(drawn("uniform", 20, 7, 200_000), minlength=20)
    assert np.abs(even / 200_000 - 0.05).max() < 0.003


def test_the_share_of_repeats_is_the_share_asked_for() -> None:
    made = source(
        count=1000, repeat=0.3, repeat_popularity="zipf 1", prompt_tokens={"dist": "uniform", "min": 5, "max": 50}
    )
    payloads = [made.payload(i) for i in range(1000)]
    times = Counter(one.prompt for one in payloads)
    assert len(times) == 700
    assert max(times.values()) > 20  # the most popular of 700 by 1/k has a seventh of 300
    assert len({(one.prompt, one.n_in, one.max_output_tokens) for one in payloads}) == 700
    # With each sample sent once, in any order, a share of 0.3 has been sent before.
    assert (Unlimited(made).shares(np.random.default_rng(3).permutation(1000)) == 1).sum() == 300


def test_a_marker_makes_beginnings_differ_and_no_prompt_longer() -> None:
    plain, busted = (source(count=200, prompt_tokens=100, unit="bytes", bust=bust) for bust in (False, True))
    prompts = [str(busted.payload(i).prompt) for i in range(200)]
    assert len({prompt[:MARKER] for prompt in prompts}) == 200
    for i, prompt in enumerate(prompts):
        assert len(prompt) == 100
        assert prompt[MARKER:] == str(plain.payload(i).prompt)[MARKER:]
    assert [len(marked(text, 1)) for text in ("", "ab")] == [0, 2]


def test_what_the_endpoint_adds_comes_off_the_prompt() -> None:
    payload = source(prompt_tokens=130, added_tokens=26).payload(0)
    assert (payload.n_in, len(str(payload.prompt).split())) == (130, 80)
    assert len(str(source(prompt_tokens=10, added_tokens=500).payload(0).prompt).split()) == 1


class _Parts:
    """Two groups of two samples, and one by itself."""

    shares = True
    chains: tuple[Chain, ...] = (
        (("a", 6), (None, 4)), (("a", 8), (None, 2)), (("b", 5), ("a", 5)), (("b", 5), ("a", 3)), ((None, 7),)
    )  # fmt: skip

    def __len__(self) -> int:
        return len(self.chains)

    def chain(self, index: int) -> Chain:
        return self.chains[index]


def test_a_cache_without_limit_has_what_was_sent_before_and_no_more() -> None:
    shares = Unlimited(_Parts()).shares(np.array([0, 1, 2, 3, 0, 4, 4, -1]))
    assert shares[:-1].tolist() == [0, 0.6, 0, 1, 1, 0, 1]
    assert np.isnan(shares[-1])


@given(st.lists(st.integers(0, 4), max_size=40), st.integers(0, 40))
def test_hits_are_the_same_however_the_order_is_cut(order: list[int], at: int) -> None:
    whole, parts = Unlimited(_Parts()), Unlimited(_Parts())
    rows = np.array(order, np.int64)
    assert whole.shares(rows).tolist() == [*parts.shares(rows[:at]), *parts.shares(rows[at:])]


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"shared": {"tokens": 10, "popularity": "zip 1"}}, "source.shared.popularity: 'zip 1' is no popularity"),
        ({"shared": {"tokens": 10, "popularity": "zipf -1"}}, "Write uniform, or zipf and an exponent above 0"),
        ({"shared": {"groups": 3}}, "source.shared.tokens: is missing"),
        ({"shared": {"tokens": 9}, "shared_prefix_tokens": 3}, "shared and shared_prefix_tokens are both given"),
        ({"bust": True, "repeat": 0.5}, "bust lets no two prompts begin alike, and repeat does"),
        ({"repeat": 1.0}, "source.repeat: is 1.0"),
    ],
)
def test_mistakes_are_said_with_key_and_remedy(params: dict[str, Any], says: str) -> None:
    with pytest.raises(ScenarioError, match=r"f\.yaml") as error:
        source(**params)
    assert says in str(error.value)


def test_a_sweep_sets_keys_below_the_source() -> None:
    flags: dict[str, Any] = {"source.shared.groups": 3, "source.shared.tokens": 8, "source.count": 9}
    made = with_flags(parse({"kind": "server", "source": {"kind": "synthetic_text", "shared": {"tokens": 5}}}), **flags)
    assert (made.source.shared.groups, made.source.shared.tokens, made.source.count) == (3, 8, 9)  # type: ignore[attr-defined]
    with pytest.raises(ScenarioError, match=r"source\.cuont: unknown key. Did you mean count"):
        with_flags(None, **{"source.cuont": 1})  # type: ignore[misc]


def test_files_of_prompts_that_do_not_repeat_stay_as_they_were() -> None:
    keys = parse({"kind": "server"}, "f").to_mapping()["source"].keys()
    assert not keys & {"shared", "repeat", "repeat_popularity", "bust", "added_tokens"}
    assert "synthetic_text" in sources()
