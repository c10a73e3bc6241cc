"""No end-to-end failure is hidden: what passes at its second try is printed last and counted over all stages, and the
third fails the run.
"""

from __future__ import annotations

import pytest

from tests import second_tries

pytest_plugins = ["pytester"]
FLAKY = """
import pytest
tried = set()
@pytest.mark.parametrize("name", range({number}))
def test_flaky(name):
    again = name in tried
    tried.add(name)
    assert again
def test_sound():
    pass
"""


@pytest.fixture(autouse=True)
def _a_make_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLIMSOLL_SECOND_TRIES", raising=False)
    monkeypatch.setattr(second_tries, "WAIT_S", 0.0)


def ran(pytester: pytest.Pytester, number: int) -> pytest.RunResult:
    (pytester.path / "tests" / "e2e").mkdir(parents=True, exist_ok=True)
    pytester.makepyfile(**{"tests/e2e/test_it": FLAKY.format(number=number)})
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "tests.second_tries")


@pytest.mark.parametrize(("number", "code"), [(1, 0), (2, 0), (3, 1)])
def test_two_second_tries_are_named_and_three_fail(number: int, code: int, pytester: pytest.Pytester) -> None:
    done = ran(pytester, number)
    assert done.ret == code
    done.assert_outcomes(passed=number + 1)
    assert done.stdout.str().count("passed at its second try") == number
    assert done.stdout.str().count("assert again") == number, "what failed at the first try is shown"


def test_the_tries_of_all_stages_count(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIMSOLL_SECOND_TRIES", str(pytester.path / "tries"))
    assert ran(pytester, 1).ret == 0
    assert ran(pytester, 2).ret == 1
    assert len((pytester.path / "tries").read_text().splitlines()) == 3
