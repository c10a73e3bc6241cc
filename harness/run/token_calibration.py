"""``--calibrate-tokens``: what the endpoint's tokenizer makes of synthetic words, asked before the run.

A few prompts of two lengths, each with an answer of one token, none of them judged. The endpoint's own counts give
tokens per word, and what it adds to every prompt (a chat template); with these a prompt of N tokens is one of N tokens
there. Texts are seeded, so that the same endpoint gives the same numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from plimsoll.harness.clock import LoopClock
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.protocols._clients import asked_once
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.transport.client import Client, Target
from plimsoll.scenarios.plan.seeds import child
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.scenarios.samples.words import text
from plimsoll.scenarios.spec import Scenario
from plimsoll.slo.records.records import Status, TokensFrom

#: Words of the prompts, and so many prompts of each length: chance in which words are drawn moves the result by less
#: than 1 %, measured with bytes for tokens, where words differ most.
WORDS, EACH = (20, 400), 4
#: Of ``tokens_per_word``, as sources take it.
LEAST, MOST = 0.1, 20


def unmeasurable(scenario: Scenario) -> list[str]:
    """Why tokens can't be measured for this scenario, with what to do; none: they can."""
    source, protocol = scenario.source, protocols().get(scenario.target.protocol)
    if "added_tokens" not in type(source).model_fields:
        kind = getattr(source, "kind", "")
        return [
            f"--calibrate-tokens: source {kind} sends texts as they are. Leave it out, or use synthetic_text or trace"
        ]
    if getattr(source, "unit", "tokens") != "tokens":
        return ["--calibrate-tokens: source.unit is bytes, whose lengths are exact. Leave out the one or the other"]
    if protocol is not None and not protocol.needs_url:
        return ["--calibrate-tokens: the null protocol has no tokenizer. Leave it out"]
    return []


async def measured(scenario: Scenario, target: Target) -> Mapping[str, float]:
    """``tokens_per_word`` and ``added_tokens`` for the scenario's source, and for the manifest also the ``factor`` by
    which its words have more tokens than assumed, and of how many ``requests`` that is.

    Raises HarnessFault where the endpoint does not answer, or does not count.
    """
    clock = LoopClock(asyncio.get_running_loop())
    client = protocols()[target.protocol].build(target, clock)
    try:
        await client.open(0)
        few, many = [await _tokens(client, clock, scenario.seed, n_words, target.timeout_ns) for n_words in WORDS]
    finally:
        await client.close()
        clock.close()
    per_word = round((many - few) / (WORDS[1] - WORDS[0]), 3)
    if not LEAST < per_word <= MOST:
        raise HarnessFault(
            f"--calibrate-tokens: the endpoint counts {per_word:g} tokens a word, which no tokenizer does. Nothing of "
            "the run was sent. Look at usage.prompt_tokens in its answers, or set source.tokens_per_word"
        )
    added, before = max(0, round(few - per_word * WORDS[0])), getattr(scenario.source, "tokens_per_word", per_word)
    factor = round(per_word / before, 4)
    return {"tokens_per_word": per_word, "added_tokens": added, "factor": factor, "requests": EACH * len(WORDS)}


async def _tokens(client: Client, clock: LoopClock, seed: int, n_words: int, timeout_ns: int) -> float:
    """Of a prompt of so many words, on average."""
    tokens = 0
    for number in range(EACH):
        words = text(child(seed, f"calibrate tokens {n_words} {number}"), n_words, "tokens", 1.0)
        payload = Payload(prompt=words, n_in=n_words, max_output_tokens=1)
        why: str | None = None
        try:
            name = f"plimsoll-tokens-{n_words}-{number}".encode()
            exchange = await asked_once(client, clock, payload, name, timeout_ns)
            client.settle(exchange)
            if exchange.status != Status.OK:
                why = exchange.error or Status(exchange.status).name
            elif exchange.n_in_from != TokensFrom.USAGE:
                why = "its answer has no usage with prompt tokens"
        except TimeoutError:
            why = "no answer in time"
        if why is not None:
            raise HarnessFault(
                f"--calibrate-tokens: the endpoint did not count a prompt of {n_words} words ({why}). Nothing of the "
                "run was sent. Have it tell usage (target.options.include_usage), or set source.tokens_per_word"
            )
        tokens += exchange.n_in
    return tokens / EACH
