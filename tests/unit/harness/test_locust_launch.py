"""From Locust's start form to the command line of ``plimsoll run``, and addresses."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from plimsoll.harness.distributed import bridge
from plimsoll.harness.distributed.bridge import Address, Bridge, address
from plimsoll.harness.distributed.page import command
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.series.one_run import ALONE
from plimsoll.harness.verbs.flags import addressed
from plimsoll.harness.verbs.run import staff_of


def test_what_the_form_holds_becomes_flags_and_what_it_leaves_empty_does_not() -> None:
    given = {
        "plimsoll_scenario": "smoke",
        "plimsoll_slo": "p99(ttft) <= 1s; ratio(error) <= 1%;",
        "plimsoll_rate": " 40 ",
        "plimsoll_url": "",
        "plimsoll_flags": "--option 'a.b=1 2' --seed 7",
        "num_users": 3,
    }
    assert command(given, "http://host", 2, (5, 8)) == [
        "run", "smoke", "--url=http://host", "--rate=40", "--slo=p99(ttft) <= 1s", "--slo=ratio(error) <= 1%",
        "--option", "a.b=1 2", "--seed", "7", "--locust-master=fd:5,8", "--expect-workers=2",
    ]  # fmt: skip


def test_the_url_of_the_form_goes_before_locusts_host() -> None:
    words = command({"plimsoll_url": "http://mine"}, "http://host", 1, (3, 4))
    assert "--url=http://mine" in words
    assert "--url=http://host" not in words


def test_unbalanced_quotes_are_refused() -> None:
    with pytest.raises(HarnessFault, match="--plimsoll-flags: No closing quotation"):
        command({"plimsoll_flags": "--option 'a"}, None, 1, (3, 4))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("10.0.0.1:99", ("10.0.0.1", 99)),
        ("99", ("*", 99)),
        (":99", ("*", 99)),
        ("host", ("host", 5557)),
        ("[::1]:99", ("[::1]", 99)),
    ],
)
def test_what_an_address_leaves_out_is_the_defaults(text: str, found: tuple[str, int]) -> None:
    assert address(text, "--locust-master", "*:5557") == Address(*found)


@pytest.mark.parametrize("text", ["http://host:99", "host:99999", "a b", "host:port", ""])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(HarnessFault, match=r"is no HOST:PORT"):
        address(text, "--locust-master", "*:5557")


def test_an_agent_must_say_which_host() -> None:
    with pytest.raises(HarnessFault, match=r"--locust-worker: '5557' is no HOST:PORT"):
        address("5557", "--locust-worker", ":5557")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["smoke", "--locust-master"], ["smoke", "--locust-master=*:5557"]),
        (["--locust-master", "smoke"], ["--locust-master=*:5557", "smoke"]),
        (["--locust-master", "--json"], ["--locust-master=*:5557", "--json"]),
        (["--locust-master", "127.0.0.1:1", "smoke"], ["--locust-master=127.0.0.1:1", "smoke"]),
        (["--locust-web", "8089", "--locust-master=host"], ["--locust-web=8089", "--locust-master=host"]),
        (["--locust-web"], ["--locust-web=127.0.0.1:8089"]),
        (["--out", "x"], ["--out", "x"]),
    ],
)
def test_the_address_may_be_left_out(words: list[str], found: list[str]) -> None:
    assert addressed(words) == found


def test_flags_of_a_fleet_without_one_are_refused() -> None:
    _, errors = staff_of("x:y", None, 2, None, "127.0.0.1:1")
    assert "not [HOST:]PORT" in errors[0]
    assert "--expect-workers, --locust-web: only with --locust-master" in errors[1]
    staff, errors = staff_of(None, None, None, None, None)
    assert (staff.gather, staff.watchers, errors) == (ALONE.gather, (), [])


def test_without_locust_the_user_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "find_spec", lambda name: None)
    with pytest.raises(HarnessFault, match=r"pip install 'plimsoll-slo\[locust\]'"):
        bridge.require_locust()


def test_a_master_that_gave_its_pipes_is_asked_for_its_agents_by_every_later_run() -> None:
    (theirs, ours), (mine, yours) = os.pipe(), os.pipe()
    os.write(ours, b'{"event": "listening", "at": "locust", "web": null}\n')
    one = Bridge(f"fd:{theirs},{yours}")

    async def a_run(number: int) -> None:
        await one.open()
        one.say({"to": "*", "message": {"type": f"of run {number}"}})
        await one.close()

    for number in (1, 2):
        asyncio.run(a_run(number))
    said = [json.loads(line)["message"]["type"] for line in os.read(mine, 1000).splitlines()]
    assert said == ["of run 1", "who", "of run 2"]
    for number in (theirs, ours, mine, yours):
        os.close(number)
