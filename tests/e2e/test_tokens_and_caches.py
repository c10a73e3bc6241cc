"""Prompts in the endpoint's own tokens, and what its prefix cache had of them. Real servers, about half a minute."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.run.token_calibration import EACH, WORDS, measured
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.spec import parse
from tests.e2e.plimsoll import ROOT, plimsoll_here, server
from tests.raw_server import Script, answer, raw_server

pytestmark = pytest.mark.e2e

MOONCAKE = ROOT / "tests" / "traces" / "mooncake_conversation_excerpt.jsonl"


def facts(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "generator.json").read_text())["facts"]
    return found


def test_a_calibrated_replay_asks_for_the_tokens_that_were_recorded(tmp_path: Path) -> None:
    """The bundled server has a token for each byte: words count 4.5 times what synthetic text assumes."""
    rows = [json.loads(line) for line in MOONCAKE.read_text().splitlines()][:12]
    short = [{**row, "output_length": 2} for row in rows if row["input_length"] < 8000]
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps(row) for row in short))
    factors = {}
    with server("--model", "scripted", "--ttft", "5ms", "--itl", "1ms") as running:
        for out, more in (("plain", ()), ("calibrated", ("--calibrate-tokens",))):
            given = ("t.jsonl", "--speed", "5", "--url", running.url, "--out", out, "--json", *more)
            done = plimsoll_here("replay", *given, cwd=tmp_path)
            assert done.returncode in (0, 4), done.stderr
            said = facts(tmp_path / out)
            assert said["planned_tokens"] == sum(row["input_length"] for row in short)
            factors[out] = said["told_tokens"] / said["planned_tokens"]
            told = [text for text in json.loads(done.stdout)["warnings"] if "times the tokens of the plan" in text]
            assert bool(told) == (out == "plain")
    assert factors["plain"] == pytest.approx(4.5, rel=0.05)
    assert factors["calibrated"] == pytest.approx(1, rel=0.05)
    manifest = json.loads((tmp_path / "calibrated" / "manifest.json").read_text())["token_calibration"]
    assert manifest["factor"] == pytest.approx(4.5, rel=0.05)
    assert manifest["requests"] == EACH * len(WORDS)
    scenario = (tmp_path / "calibrated" / "scenario.yaml").read_text()
    assert f"tokens_per_word: {manifest['tokens_per_word']}" in scenario


def test_each_class_of_a_mix_counts_in_its_endpoints_tokens_and_the_others_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "hi"}\n')
    (tmp_path / "s.yaml").write_text(
        "name: s\nstop: {min_queries: 8, max_queries: 8, min_duration: 0s}\n"
        "mix:\n"
        "  chat: {kind: concurrency, source: {kind: synthetic_text, count: 8, prompt_tokens: 90, output_tokens: 2}}\n"
        "  said: {kind: concurrency, source: {kind: jsonl, path: p.jsonl}}\n"
    )
    with server("--model", "scripted", "--ttft", "5ms", "--itl", "1ms") as running:
        given = ("--url", running.url, "--out", "r", "--calibrate-tokens", "--quiet")
        done = plimsoll_here("run", "s.yaml", *given, cwd=tmp_path)
    assert done.returncode in (0, 4), done.stderr
    assert "class chat: a word has " in done.stderr
    chat, said = facts(tmp_path / "r" / "classes" / "chat"), facts(tmp_path / "r" / "classes" / "said")
    assert chat["told_tokens"] / chat["planned_tokens"] == pytest.approx(1, rel=0.05)
    assert "planned_tokens" not in said
    folders = {name: tmp_path / "r" / name for name in ("classes/chat", "classes/said", ".")}
    told = {name: "token_calibration" in (folder / "manifest.json").read_text() for name, folder in folders.items()}
    assert told == {"classes/chat": True, "classes/said": False, ".": False}
    for name in ("classes/chat", "."):
        assert "tokens_per_word: 5." in (folders[name] / "scenario.yaml").read_text()
    (tmp_path / "b.yaml").write_text("mix:\n  a: {kind: server, source: {kind: jsonl, path: p.jsonl}}\n")
    none = plimsoll_here("run", "b.yaml", "--calibrate-tokens", cwd=tmp_path)
    assert (none.returncode, "--calibrate-tokens: class a: source jsonl" in none.stderr) == (2, True), none.stderr


def test_a_prefix_cache_is_told_of_beside_the_ideal(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "name: s\nkind: concurrency\nparams: {concurrency: 1, order: permutation}\n"
        "source: {kind: synthetic_text, count: 24, prompt_tokens: 16, output_tokens: 2, unit: bytes,\n"
        "         shared: {groups: 2, tokens: 256}}\n"
        "stop: {min_queries: 24, max_queries: 24, min_duration: 0s}\n"
    )
    shares = {}
    for name, flags in (("on", ("--prefix-cache",)), ("off", ())):
        with server("--model", "llm", "--preset", "tiny", "--device", "cpu", *flags) as running:
            done = plimsoll_here("run", "s.yaml", "--url", running.url, "--out", name, "--json", cwd=tmp_path)
        assert done.returncode in (0, 4), done.stderr
        shares[name] = json.loads(done.stdout)["prefix_cache"]["whole"]
    ideal = shares["on"]["ideal_share"]
    assert ideal == shares["off"]["ideal_share"] == pytest.approx(256 / 272 * 22 / 24, abs=1e-3)
    assert shares["off"]["cached_share"] == 0
    # Blocks of 16 tokens, and what the chat template puts in front: no more than the ideal, and not much less.
    assert 0.9 * ideal <= shares["on"]["cached_share"] <= 1.05 * ideal


def endpoint(body: bytes, status: bytes = b"200 OK") -> Script:
    async def script(_request: Any, _reader: Any, writer: Any, _number: int) -> None:
        writer.write(answer(body, b"content-type: application/json\r\n", status))

    return script


def completion(**usage: Any) -> bytes:
    choices = [{"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}]
    return json.dumps({"id": "c", "object": "chat.completion", "choices": choices, **usage}).encode()


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (completion(), b"200 OK", "a prompt of 20 words (its answer has no usage with prompt tokens)"),
        (b"{}", b"400 Bad Request", "did not count a prompt of 20 words (HTTP 400"),
        (completion(usage={"prompt_tokens": 7, "completion_tokens": 1}), b"200 OK", "counts 0 tokens a word"),
    ],
)
def test_an_endpoint_that_can_not_be_measured_is_told_of_before_the_run(body: bytes, status: bytes, says: str) -> None:
    async def ask() -> None:
        async with raw_server(endpoint(body, status)) as url:
            await measured(parse({"kind": "server"}), Target(url, "openai-chat", "m", options={"stream": False}))

    with pytest.raises(HarnessFault) as caught:
        asyncio.run(ask())
    assert says in str(caught.value)
    assert "set source.tokens_per_word" in str(caught.value)
    assert caught.value.code == 2


def test_what_has_no_tokens_per_word_is_refused_with_the_other_mistakes(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "hi"}\n')
    (tmp_path / "s.yaml").write_text("kind: server\nsource: {kind: jsonl, path: p.jsonl}\n")
    done = plimsoll_here("run", "s.yaml", "--calibrate-tokens", "--slo", "p99(nope) <= 1s", cwd=tmp_path)
    assert done.returncode == 2
    assert "--calibrate-tokens: source jsonl sends texts as they are" in done.stderr
    assert "nope" in done.stderr
    (tmp_path / "b.yaml").write_text("kind: server\nsource: {kind: synthetic_text, unit: bytes}\n")
    done = plimsoll_here("run", "b.yaml", "--calibrate-tokens", cwd=tmp_path)
    assert (done.returncode, "source.unit is bytes" in done.stderr) == (2, True)
    assert not (tmp_path / "runs").exists()
