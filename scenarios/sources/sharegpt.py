"""ShareGPT: recorded conversations. The first human turn is the prompt, the answer after it gives the output length;
``turns: all`` keeps the turns after it too, as far as the limits go, for kind ``sessions``.

The file is a JSON list of ``{"id", "conversations": [{"from": "human" | "gpt" | "system", "value": "..."}]}``. A system
turn before the first human one is sent as the system message. Lengths in tokens are estimated as words times
``tokens_per_word``. Conversations without a question and an answer, and those that are too short or too long (the
limits vLLM's benchmark made customary), are left out and counted.
"""

import codecs
import json
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from pydantic import BaseModel, Field

from plimsoll.documents import files
from plimsoll.scenarios.plugins import Source
from plimsoll.scenarios.samples.lines import cap, scalar, told, without_values
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.scenarios.samples.payload_file import PayloadFile
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.scenarios.text.fields import STRICT, FileName, missing

_HUMAN, _ANSWER = ("human", "user"), ("gpt", "chatgpt", "assistant", "bing", "bard")
#: Bytes that are read at once. What is this near to their end may go on: a number, a literal, an escape.
_BLOCK, _AHEAD = 1 << 20, 16
#: What stands before the first entry, and before every other.
_FIRST, _NEXT = re.compile(r"[ \t\n\r]*\[[ \t\n\r]*"), re.compile(r"[ \t\n\r]*,[ \t\n\r]*")
#: The bytes of a mark at the beginning, by encoding, and the encoding of what follows.
_MARKED = {"utf-8-sig": (3, "utf-8"), "utf-16": (2, "utf-16-le"), "utf-32": (4, "utf-32-le")}


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


def _labelled(params: ShareGpt, seed: int, keys: Collection[str] = ()) -> PayloadFile:
    path = Path(params.path)
    problem = missing(path, "source.path")
    if problem:
        raise ScenarioError([problem])
    made = PayloadFile(path, lambda entry: cast(Payload, _payload(entry, params)))
    filtered: Counter[str] = Counter()
    errors: list[str] = []
    said: dict[str, list[str | float | None]] = {key: [] for key in keys}
    made.labels = said
    try:
        for number, (begin, n, entry) in enumerate(_entries(made.file)):
            if params.count is not None and len(made) >= params.count:
                continue  # is the rest JSON?
            try:
                payload = _payload(entry, params)
                values = {key: scalar(entry, key) for key in keys}
            except ValueError as error:
                told(errors, f"{path}[{number}]: {error}")
                continue
            if isinstance(payload, str):
                filtered[payload] += 1
            else:
                made.add(begin, n, payload)
                for key, value in values.items():
                    said[key].append(sys.intern(value) if isinstance(value, str) else value)
    except (_Broken, RecursionError) as error:
        raise _broken(path, str(error)) from None
    if not len(made) and not errors:
        why = ", ".join(f"{n} {reason}" for reason, n in sorted(filtered.items())) or "the list is empty"
        errors = [f"{path}: no conversation is left ({why}). Widen the limits or give another file."]
    errors += without_values(path, said) if not errors else []
    if errors:
        raise ScenarioError(cap(errors, str(path)))
    made.filtered |= sorted(filtered.items())
    return made


class _Broken(ValueError):
    """This is not one JSON list."""


def _entries(file: BinaryIO) -> Iterator[tuple[int, int, Any]]:
    """Each entry of the list: where it begins, its length in bytes, and its value. Raises _Broken, RecursionError."""
    encoding = json.detect_encoding(file.read(4))
    file.seek(0)
    byte, plain = _MARKED.get(encoding, (0, encoding))
    decoder, decode = codecs.getincrementaldecoder(encoding)("surrogatepass"), json.JSONDecoder().raw_decode
    text, sign, last, block = "", _FIRST, False, _BLOCK
    while not last:
        data, at = file.read(block), 0
        last = len(data) < block
        try:
            text += decoder.decode(data, last)
            while before := sign.match(text, at):
                start = before.end()
                if sign is _FIRST and text.startswith("]", start):
                    at, sign = start, _NEXT
                    break
                value, end = decode(text, start)
                if end > len(text) - _AHEAD and not last:
                    break  # a number may go on
                byte += len(text[at:start].encode(plain, "surrogatepass"))
                n = len(text[start:end].encode(plain, "surrogatepass"))
                yield byte, n, value
                byte, at, sign = byte + n, end, _NEXT
        except UnicodeDecodeError as error:
            raise _Broken(error.reason) from None
        except json.JSONDecodeError as error:
            if last or (error.pos < len(text) - _AHEAD and not error.msg.startswith("Unterminated")):
                raise _Broken(error.msg) from None
        text, block = text[at:], _BLOCK if at else 2 * block
    if sign is _FIRST or text.strip(" \t\n\r") != "]":
        raise _Broken("it is not one list")


def _broken(path: Path, wrong: str) -> ScenarioError:
    """What is wrong with it, in the words of a reader that has all of it, and so knows the line."""
    with suppress(OSError):  # too large for that
        try:
            if not isinstance(json.loads(files.read_bytes(path)), list):
                return ScenarioError([f"{path}: not a list. Give a list of conversations."])
        except (ValueError, RecursionError) as error:
            wrong = str(error)
    return ScenarioError([f"{path}: not JSON ({wrong}). Give the whole list as one JSON document."])


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
    build=_labelled,
    labelled=_labelled,
    sample_file='[{"id": "1", "conversations": [{"from": "human", "value": "What is a load line, please?"},'
    ' {"from": "gpt", "value": "A mark on a hull that shows how deep she may lie."}]}]\n',
)
