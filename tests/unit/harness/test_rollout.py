"""``--exit-map``, and which run of ``plimsoll hook`` answers whom."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from typer import BadParameter

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.series.rollout import KEEP_S, Call, Desk, Hook, Result, read
from plimsoll.harness.verbs.flags import exit_map
from tests.command import invoke


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("argo", {3: 1, 4: 1}),
        ("argo:3=0", {3: 0, 4: 1}),
        ("argo:3=0,4=7", {3: 0, 4: 7}),
        ("3=0", {3: 0}),
        ("3=0, 4=255", {3: 0, 4: 255}),
    ],
)
def test_a_map_says_what_no_verdict_is(text: str, found: dict[int, int]) -> None:
    assert exit_map(text) == found


@pytest.mark.parametrize(
    "text", ["", "argos", "argo,3=0", "1=0", "2=0", "3=256", "3=-1", "3=0,3=1", "3", "3=0,", "٣=0"]
)
def test_no_other_map_is_read_and_a_fail_stays_one(text: str) -> None:
    with pytest.raises(BadParameter, match=r"3 \(INCONCLUSIVE\) and 4 \(INVALID\)"):
        exit_map(text)


@pytest.mark.parametrize("verb", ["run", "gate", "compare", "canary", "hook"])
def test_a_bad_map_is_told_with_every_other_error_before_anything_is_made(verb: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    more = ["--confidence", "2"] if verb == "gate" else ["--out", str(out)]
    found = invoke(verb, str(tmp_path / "none.yaml"), "--exit-map", "1=0", "--slo", "p99(", *more)
    assert isinstance(found.exception, HarnessFault)
    said = "\n".join(found.exception.errors)
    assert "--exit-map: '1=0'" in said
    assert "p99(" in said
    assert found.exception.code == 2
    assert not out.exists()


def test_a_hook_tells_every_mistake_before_it_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_TOKEN", raising=False)
    file = tmp_path / "chat.yaml"
    file.write_text("name: chat\nkind: server\n")
    found = invoke("hook", str(file), "--host", "0.0.0.0", "--allow", "url,cmd", "--token-env", "NO_TOKEN")
    assert isinstance(found.exception, HarnessFault)
    said = found.exception.errors
    for part in ("--allow cmd: not one of url, model", "--allow url: whoever reaches 0.0.0.0", "NO_TOKEN is not set",
                 "nothing is promised"):  # fmt: skip
        assert [one for one in said if part in one], (part, said)
    assert len(said) == 4


def test_a_hook_without_its_secret_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_KEY", raising=False)
    file = tmp_path / "chat.yaml"
    target = '{url: "http://127.0.0.1:9", api_key_env: NO_KEY}'
    file.write_text(f"name: chat\nkind: server\ntarget: {target}\nobjectives: [p50(ttft) <= 1s]\n")
    found = invoke("hook", str(file), "--port", "0")
    assert isinstance(found.exception, HarnessFault)
    assert "NO_KEY is not set" in found.exception.errors[0]


def test_a_hook_that_could_keep_no_run_does_not_begin(tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text("name: chat\nkind: server\nobjectives: [p50(ttft) <= 1s]\n")
    found = invoke("hook", str(file), "--port", "0", "--out", str(file / "runs"))
    assert isinstance(found.exception, HarnessFault)
    assert found.exception.errors[0].startswith(f"--out: cannot write in {file}/runs (Not a directory)")


# -- a call ---------------------------------------------------------------------------------------------------


def test_a_call_sets_what_is_allowed_and_nothing_else() -> None:
    told: dict[str, Any] = {"url": "http://a", "rate": 20, "token": "t", "again": True}
    call = read({"checksum": "c", "name": "n", "phase": "Waiting", "metadata": told}, ("url", "rate"))
    assert call.sets() == {"url": "http://a", "rate": "20"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], ["the body: Input should be"]),
        ({"metadata": {}}, ["checksum: Field required"]),
        ({"checksum": ""}, ["checksum: String should have at least 1"]),
        ({"checksum": "c", "command": "rm"}, ["command: Extra inputs"]),
        ({"checksum": "c", "metadata": {"rate": [1]}}, ["metadata.rate"]),
        # A NUL can't stand in a command line.
        ({"checksum": "c", "metadata": {"url": "http://a\0"}}, ["metadata url: it has"]),
        ({"checksum": "c", "metadata": {"url": "http://\ud800"}}, ["metadata url: it has"]),
        (
            {"checksum": "c", "metadata": {"cmd": "rm", "url": "http://a/${env:KEY}", "rate": "2"}},
            ["metadata 'cmd': a call may set url", "metadata 'rate': a call may set url", "metadata url: it has ${"],
        ),
    ],
)
def test_a_call_tells_every_mistake(given: Any, said: list[str]) -> None:
    with pytest.raises(HarnessFault) as fault:
        read(given, ("url",))
    for part in said:
        assert [one for one in fault.value.errors if part in one], fault.value.errors


# -- the desk -------------------------------------------------------------------------------------------------


class Made:
    """Runs that end when they are told how; ``now`` is the clock of the desk."""

    def __init__(self) -> None:
        self.begun: list[asyncio.Future[Result]] = []
        self.now = 0.0
        self.desk = Desk(self._measure, lambda: self.now)

    async def _measure(self, call: Call) -> Result:
        self.begun.append(asyncio.get_running_loop().create_future())
        return await self.begun[-1]

    async def ask(self, checksum: str = "c", **metadata: str | bool) -> asyncio.Task[Result] | None:
        run = self.desk.run(Call(checksum=checksum, metadata={**metadata}))
        await asyncio.sleep(0)
        return None if run is None else run.task

    async def given(self, checksum: str = "c", **metadata: str | bool) -> int | None:
        """Ask for what has ended, and take it; None: a new run was begun instead."""
        run = self.desk.run(Call(checksum=checksum, metadata={**metadata}))
        await asyncio.sleep(0)
        assert run is not None
        if not run.task.done():
            return None
        run.given = True
        return run.task.result().code

    async def end(self, code: int) -> None:
        self.begun[-1].set_result(Result(code, "said", {}))
        for _ in range(3):
            await asyncio.sleep(0)


def scene(play: Callable[[Made], Awaitable[None]]) -> None:
    async def played() -> None:
        await play(Made())

    asyncio.run(played())


def test_who_asks_for_what_goes_on_waits_for_it_and_another_version_has_to_ask_again() -> None:
    async def play(made: Made) -> None:
        first, second, other = await made.ask(), await made.ask(), await made.ask("d")
        assert first is second
        assert other is None
        assert await made.ask(rate="3") is None, "another load is another run"
        await made.end(0)
        assert len(made.begun) == 1
        assert await made.ask("d") is not None
        assert len(made.begun) == 2

    scene(play)


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_verdict_stands_until_it_is_old(code: int) -> None:
    async def play(made: Made) -> None:
        await made.ask()
        await made.end(code)
        assert [await made.given() for _ in range(3)] == [code] * 3
        made.now = KEEP_S + 1
        assert await made.given() is None

    scene(play)


@pytest.mark.parametrize("code", [2, 4, 5, 130])
def test_what_is_no_verdict_is_told_once_and_measured_again(code: int) -> None:
    async def play(made: Made) -> None:
        await made.ask()
        await made.end(code)
        assert await made.given() == code, "who gave up waiting hears of it"
        assert await made.given() is None

    scene(play)


def test_again_measures_anew_once_somebody_has_the_result() -> None:
    async def play(made: Made) -> None:
        await made.ask(again="true")
        await made.end(1)
        assert await made.given(again="True") == 1
        assert await made.given(again=True) is None
        await made.end(0)
        assert [await made.given(), await made.given(again="false")] == [0, 0]

    scene(play)


def test_a_run_that_broke_is_not_answered_with() -> None:
    async def play(made: Made) -> None:
        task = await made.ask()
        made.begun[-1].set_exception(HarnessFault("no room for a process"))
        for _ in range(3):
            await asyncio.sleep(0)
        assert task is not None
        assert isinstance(task.exception(), HarnessFault)
        assert await made.given() is None

    scene(play)


# -- the answer -----------------------------------------------------------------------------------------------

VERDICT = {"reasons": [], "objectives": []}


@pytest.mark.parametrize(
    ("code", "shown", "mapped", "flagger", "argo"),
    [
        (0, {"verdict": "PASS", **VERDICT}, {}, 200, 200),
        (1, {"verdict": "FAIL", **VERDICT}, {3: 0, 4: 0}, 412, 200),
        (3, {"verdict": "INCONCLUSIVE", **VERDICT}, {}, 412, 200),
        (3, {"verdict": "INCONCLUSIVE", **VERDICT}, {3: 0}, 200, 200),
        (4, {"verdict": "INVALID", **VERDICT}, {3: 0}, 412, 200),
        (4, {"verdict": "INVALID", **VERDICT}, {4: 0}, 200, 200),
        (2, {"verdict": "NONE"}, {}, 400, 400),
        (5, {"verdict": "NONE"}, {3: 0, 4: 0}, 502, 502),
        (130, {"verdict": "NONE"}, {}, 503, 503),
        (70, {"verdict": "NONE"}, {}, 500, 500),
        (-9, {"verdict": "NONE"}, {}, 500, 500),
    ],
)
def test_flagger_is_answered_by_the_status_and_argo_by_the_verdict(
    code: int, shown: dict[str, Any], mapped: dict[int, int], flagger: int, argo: int
) -> None:
    async def measure(call: Call) -> Result:
        return Result(code, "said", shown)

    async def asked(path: str) -> web.Response:
        request: Any = make_mocked_request("GET", f"{path}?checksum=c")
        return await Hook([], "n", Path(), (), None, mapped)._asked(Desk(measure), None, request)

    answer = asyncio.run(asked("/flagger"))
    assert (answer.status, answer.text) == (flagger, "said\n")
    answer = asyncio.run(asked("/argo"))
    assert answer.status == argo
    assert answer.text is not None
    found = json.loads(answer.text)
    assert found == {"schema": "plimsoll.hook/1", **shown, "exit_code": mapped.get(code, code), "text": "said"}


@pytest.mark.parametrize(
    ("header", "query", "status"),
    [
        ("Bearer right", "", 200),
        ("", "&token=right", 200),
        ("Bearer wrong", "&token=right", 401),
        ("", "", 401),
        ("Bearer ", "&token=", 401),
        ("Bearer ключ", "", 401),
    ],
)
def test_who_has_no_token_gets_no_run(header: str, query: str, status: int) -> None:
    begun = []

    async def measure(call: Call) -> Result:
        begun.append(call)
        return Result(0, "said", {"verdict": "PASS", **VERDICT})

    async def asked() -> int:
        headers = {"Authorization": header} if header else {}
        request: Any = make_mocked_request("GET", f"/argo?checksum=c{query}", headers=headers)
        return (await Hook([], "n", Path(), (), "right", {})._asked(Desk(measure), None, request)).status

    assert asyncio.run(asked()) == status
    assert len(begun) == (status == 200)


def test_a_result_that_nobody_was_there_to_take_is_kept_for_the_next_call() -> None:
    begun = []

    async def measure(call: Call) -> Result:
        begun.append(call)
        return Result(4, f"run {len(begun)}", {"verdict": "INVALID", **VERDICT})

    async def asked() -> list[str | None]:
        desk, hook, said = Desk(measure), Hook([], "n", Path(), (), None, {}), []
        for gone in (True, False, False):
            transport = mock.Mock(**{"is_closing.return_value": gone})
            request: Any = make_mocked_request("GET", "/flagger?checksum=c", transport=transport)
            said.append((await hook._asked(desk, None, request)).text)
        return said

    assert asyncio.run(asked()) == ["run 1\n", "run 1\n", "run 2\n"]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("[" * 60_000, 400, "error: the body is no JSON: "),
        ('{"checksum": "c", "metadata": {"token": "\\ud800"}}', 401, "no token"),
    ],
)
def test_no_body_is_a_fault_of_the_hook(body: str, status: int, said: str) -> None:
    async def measure(call: Call) -> Result:
        raise AssertionError

    async def asked() -> web.Response:
        request: Any = make_mocked_request("POST", "/argo")
        request._read_bytes = body.encode()
        return await Hook([], "n", Path(), (), "right", {})._asked(Desk(measure), None, request)

    answer = asyncio.run(asked())
    assert answer.status == status
    assert answer.text is not None
    assert answer.text.startswith(said)
