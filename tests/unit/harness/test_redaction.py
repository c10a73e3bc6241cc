"""Secrets out of texts: in every spelling, before a cut and across one, and nothing else."""

from __future__ import annotations

import base64
import html
import io
import json
import time
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.redaction import MASK, Guarded, Redactor, learn

KEY = "s3cr/Et+Q'7&Zt=Wq~91\"x"
TEXTS = st.text(
    st.characters(min_codepoint=33, max_codepoint=255, blacklist_characters="xyz.:[]"), min_size=6, max_size=40
)


def spelt(secret: str) -> dict[str, str]:
    data = secret.encode()
    return {
        "raw": secret,
        "lower": secret.lower(),
        "upper": secret.upper(),
        "percent": quote(secret, ""),
        "path": quote(secret),
        "plus": quote_plus(secret),
        "twice": quote(quote(secret, ""), ""),
        "every byte": "".join(f"%{byte:02X}" for byte in data),
        "json": json.dumps(secret)[1:-1],
        "json, quoted": repr(json.dumps(secret)[1:-1].replace("/", "\\/"))[1:-1].replace("\\'", "'"),
        "html": html.escape(secret),
        "hex": data.hex(),
        "HEX": data.hex().upper(),
        "bytes": "".join(f"\\x{byte:02x}" for byte in data),
        **{f"base64 {n}": base64.b64encode(b"u" * n + data).decode() for n in range(3)},
    }


@given(TEXTS, st.text("xyz .:", max_size=9), st.text(". :", max_size=9))
def test_no_spelling_of_any_secret_survives(secret: str, before: str, after: str) -> None:
    redactor = Redactor([secret])
    for name, spelling in spelt(secret).items():
        shown = redactor.redact(f"{before} {spelling} {after}").replace(MASK, "")
        for piece in (spelling, spelling[-6:]):
            assert piece not in shown, name


@pytest.mark.parametrize("name", spelt(KEY))
def test_a_cut_leaves_no_beginning_of_a_secret(name: str) -> None:
    spelling = spelt(KEY)[name]
    redactor = Redactor([KEY])
    needle = (
        spelling[4:8] if name in ("base64 1", "base64 2") else spelling[:4]
    )  # the first group holds what is before it
    for limit in range(5, 60):
        shown = redactor.cut(f"no {spelling} is known here, " + "x" * 60, limit)
        assert len(shown) <= max(limit, len("no " + MASK))
        assert needle not in shown, limit
    for length in range(len(spelling)):  # whoever cut it, before we saw it
        shown = redactor.cut(f"bad key '{spelling[:length]}'", 300)
        assert len(shown.partition("'")[2].strip("'")) < 16 or MASK in shown, length


def test_a_beginning_that_gives_a_secret_away_is_masked_anywhere_and_a_common_word_is_not() -> None:
    redactor = Redactor(
        ["sk-proj-81b2c3d4e5", "Bearer sk-proj-81b2c3d4e5", "https://internal.example", "production-key-1"]
    )
    assert redactor.redact("key sk-proj-81b... is wrong") == f"key {MASK}... is wrong"
    assert redactor.redact("Bearer authentication is needed, see https://docs.example of production") == (
        "Bearer authentication is needed, see https://docs.example of production"
    )
    assert redactor.redact("got 'Bearer sk-proj-81b2c3d4e5'") == f"got '{MASK}'"


def test_base64_around_a_secret_is_masked_as_a_whole() -> None:
    basic = base64.b64encode(b"somebody:s3cr/Et+Q'7&Zt and more").decode()
    assert Redactor(["s3cr/Et+Q'7&Zt"]).redact(f"Basic {basic}, no") == f"Basic {MASK}, no"


def test_a_text_without_a_secret_is_the_same_object() -> None:
    text = "HTTP 500: " + "nothing to see " * 10
    assert Redactor([KEY]).redact(text) is text


def test_members_of_a_message_are_masked_and_their_names_kept() -> None:
    assert Redactor(["errors-1"]).masked({"errors-1": ["x errors-1", 3, None, ("errors-1",)]}) == {
        "errors-1": [f"x {MASK}", 3, None, [MASK]]
    }


def test_a_guarded_stream_prints_no_secret() -> None:
    learn([KEY])
    stream = io.StringIO()
    guarded = Guarded(stream)
    print("no", KEY, "here", file=guarded)
    guarded.writelines([KEY, "\n"])
    guarded.flush()
    assert stream.getvalue() == f"no {MASK} here\n{MASK}\n"
    assert not guarded.isatty()


def test_a_server_that_repeats_beginnings_of_a_secret_costs_each_of_them_once() -> None:
    """Looking for each head anew after each mask took minutes for these 200 KB, in a worker's loop; 1 s now."""
    known = Redactor([KEY])
    heads = {one.head for one in known._spellings}
    raw = KEY[: min(map(len, heads))]
    begun = time.process_time()
    assert known.redact(f"{raw} " * 22_000 + " ".join(heads)) == f"{MASK} " * 22_000 + " ".join([MASK] * len(heads))
    blobs = "".join(one.head for one in known._spellings if one.blob)
    assert known.redact(blobs * 8_000) == MASK
    assert time.process_time() - begun < 10
