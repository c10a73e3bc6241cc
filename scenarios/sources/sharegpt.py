"""ShareGPT: recorded conversations. The first human turn is the prompt, the answer after it gives the output length;
``turns: all`` keeps the turns after it too, as far as the limits go, for kind ``sessions``.

The file is a JSON list of ``{"id", "conversations": [{"from": "human" | "gpt" | "system", "value": "..."}]}``. A system
turn before the first human one is sent as the system message. Lengths in tokens are estimated as words times
``tokens_per_word``. Conversations without a question and an answer, and those that are too short or too long (the
limits vLLM's benchmark made customary), are left out and counted.
"""

import json
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from plimsoll.documents import files
from plimsoll.scenarios.plugins import Source
from plimsoll.scenarios.samples.lines import cap, scalar, without_values
from plimsoll.scenarios.samples.payload import Payload, PayloadList
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.scenarios.text.fields import STRICT, FileName, missing

_HUMAN, _ANSWER = ("human", "user"), ("gpt", "chatgpt", "assistant", "bing", "bard")


class ShareGpt(BaseModel):
    """Limits are in estimated tokens. ``output_tokens`` replaces the recorded answers' lengths."""

    model_config = STRICT
    kind: Literal["sharegpt"] = "sharegpt"
    path: FileName = Field(description="The file; relative to the scenario file's folder.")
    output_tokens: int | None = Field(default=None, ge=1, le=10_000_000, description="Tokens to ask for, always.")
    turns: Literal["first", "all"] = Field(default="first", description="all: whole conversations, for kind sessions.")
    count: int | None = Field(default=None, ge=1, description="Use only the first so many that pass the limits.")
    min_tokens: int = Field(default=4, ge=1, description="Shorter prompts and recorded answers are left out.")
    max_prompt_tokens: int = Field(default=1024, ge=1, description="Longer prompts are left out.")
    max_total_tokens: int = Field(default=2048, ge=2, description="Longer prompt plus answer is left out.")
    tokens_per_word: float = Field(default=1.3, gt=0.1, le=20, description="Of the endpoint's tokenizer, about.")


def _build(params: ShareGpt, seed: int) -> PayloadList:
    return _labelled(params, seed, ())


def _labelled(params: ShareGpt, seed: int, keys: Collection[str]) -> PayloadList:
    path = Path(params.path)
    problem = missing(path, "source.path")
    if problem:
        raise ScenarioError([problem])
    payloads: list[Payload] = []
    filtered: Counter[str] = Counter()
    errors: list[str] = []
    said: dict[str, list[str | float | None]] = {key: [] for key in keys}
    for number, entry in enumerate(_entries(path)):
        if params.count is not None and len(payloads) >= params.count:
            break
        try:
            made = _payload(entry, params)
            values = {key: scalar(entry, key) for key in keys}
        except ValueError as error:
            errors.append(f"{path}[{number}]: {error}")
            continue
        if isinstance(made, str):
            filtered[made] += 1
        else:
            payloads.append(made)
            for key, value in values.items():
                said[key].append(value)
    if not payloads and not errors:
        why = ", ".join(f"{n} {reason}" for reason, n in sorted(filtered.items())) or "the list is empty"
        errors = [f"{path}: no conversation is left ({why}). Widen the limits or give another file."]
    errors += without_values(path, said) if not errors else []
    if errors:
        raise ScenarioError(cap(errors, str(path)))
    return PayloadList(tuple(payloads), dict(sorted(filtered.items())), said)


def _entries(path: Path) -> list[Any]:
    try:
        entries = json.loads(files.read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise ScenarioError([f"{path}: not JSON ({error}). Give the whole list as one JSON document."]) from None
    if not isinstance(entries, list):
        raise ScenarioError([f"{path}: not a list. Give a list of conversations."])
    return entries


def _turns(entry: Any) -> list[tuple[str, str]]:
    turns = entry.get("conversations") if isinstance(entry, dict) else None
    if not isinstance(turns, list):
        raise ValueError('has no list "conversations". Give {"conversations": [{"from", "value"}, ...]}.')
    for i, turn in enumerate(turns):
        if not isinstance(turn, dict) or not all(isinstance(turn.get(key), str) for key in ("from", "value")):
            raise ValueError(f'conversations[{i}] is not an object with texts "from" and "value". Mend it.')
    return [(turn["from"], turn["value"]) for turn in turns]


def _payload(entry: Any, params: ShareGpt) -> Payload | str:
    """A payload, or the reason why there is none."""
    turns = _turns(entry)
    ask = next((i for i, (who, _) in enumerate(turns) if who in _HUMAN), None)
    if ask is None or ask + 1 >= len(turns) or turns[ask + 1][0] not in _ANSWER:
        return "without a question and its answer"
    system = "\n".join(text for who, text in turns[:ask] if who == "system" and text.strip())
    prompt, answer = turns[ask][1], turns[ask + 1][1]
    if not prompt.strip() or not answer.strip():
        return "empty"
    n_in = _tokens(prompt, params) + (_tokens(system, params) if system else 0)
    n_out = params.output_tokens or _tokens(answer, params)
    if n_in < params.min_tokens or (params.output_tokens is None and n_out < params.min_tokens):
        return "too short"
    if n_in > params.max_prompt_tokens or n_in + n_out > params.max_total_tokens:
        return "too long"
    if params.turns == "all":
        return _conversation([("system", system)] * bool(system), turns[ask:], n_in, params)
    if not system:
        return Payload(prompt=prompt, n_in=n_in, max_output_tokens=n_out)
    messages = ({"role": "system", "content": system}, {"role": "user", "content": prompt})
    return Payload(messages=messages, n_in=n_in, max_output_tokens=n_out)


def _conversation(lead: list[tuple[str, str]], turns: list[tuple[str, str]], n_in: int, params: ShareGpt) -> Payload:
    """Questions and answers in turn, until one is missing or all together are too long."""
    kept, total = lead, 0
    lengths: list[dict[str, int]] = []
    for (asks, question), (tells, answer) in zip(turns[::2], turns[1::2], strict=False):
        total += _tokens(question, params) + _tokens(answer, params)
        whole = asks in _HUMAN and tells in _ANSWER and question.strip() and answer.strip()
        if not whole or (lengths and total > params.max_total_tokens):
            break
        kept = [*kept, ("user", question), ("assistant", answer)]
        lengths.append({"max_output_tokens": params.output_tokens or _tokens(answer, params)})
    messages = tuple({"role": role, "content": text} for role, text in kept[:-1])
    return Payload(messages=messages, n_in=n_in, max_output_tokens=-1, data={"turns": lengths})


def _tokens(text: str, params: ShareGpt) -> int:
    return max(1, round(len(text.split()) * params.tokens_per_word))


SOURCE = Source(
    name="sharegpt",
    summary="Recorded conversations in the ShareGPT format: first question, recorded answer's length.",
    params=ShareGpt,
    build=_build,
    labelled=_labelled,
    sample_file='[{"id": "1", "conversations": [{"from": "human", "value": "What is a load line, please?"},'
    ' {"from": "gpt", "value": "A mark on a hull that shows how deep she may lie."}]}]\n',
)
