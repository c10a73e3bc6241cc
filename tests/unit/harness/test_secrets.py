"""Where credentials come from, and that they stay out of everything."""

from __future__ import annotations

import base64
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.secrecy.redaction import KNOWN, MASK, Redactor, redact
from plimsoll.harness.secrecy.secrets import Headers, learn_target, public_command, resolve, sensitive_values

ENV = {"TOKEN": "tok-abcdef", "EMPTY": "", "REGION": "eu"}


def pairs(target: dict[str, Any], environ: dict[str, str] | None = None) -> dict[str, str]:
    headers, errors = resolve(target, ENV if environ is None else environ)
    assert errors == []
    return dict(headers.pairs)


def errors_of(target: dict[str, Any], environ: dict[str, str] | None = None) -> list[str]:
    return resolve(target, ENV if environ is None else environ)[1]


def test_references_in_header_values_are_replaced(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("file-secret\n")
    given = {"headers": {"X-A": "a ${env:TOKEN} b", "X-B": f"${{file:{file}}}", "X-C": "plain"}}
    assert pairs(given) == {"X-A": "a tok-abcdef b", "X-B": "file-secret", "X-C": "plain"}
    assert resolve(given, ENV)[0].secret_values == {"tok-abcdef", "file-secret"}


def test_an_api_key_becomes_a_bearer_header(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("  k-123456\n")
    assert pairs({"api_key_env": "TOKEN"}) == {"Authorization": "Bearer tok-abcdef"}
    assert resolve({"api_key_env": "TOKEN"}, ENV)[0].secret_values == {"tok-abcdef", "Bearer tok-abcdef"}
    assert pairs({"api_key_file": str(file)}) == {"Authorization": "Bearer k-123456"}


def test_the_implicit_key_is_used_only_where_nothing_else_authorises() -> None:
    environ = {**ENV, "PLIMSOLL_API_KEY": "implicit-1"}
    assert pairs({}, environ) == {"Authorization": "Bearer implicit-1"}
    assert pairs({"api_key_env": "TOKEN"}, environ) == {"Authorization": "Bearer tok-abcdef"}
    assert pairs({"headers": {"authorization": "Basic eA=="}}, environ) == {"authorization": "Basic eA=="}
    assert pairs({}) == {}


def test_a_headers_file_has_one_header_a_line_and_written_headers_win(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("# comment\n\nX-A: from ${env:REGION}\nx-b: file: with colon\n")
    target = {"headers_file": str(file), "headers": {"X-B": "written"}}
    assert pairs(target) == {"X-A": "from eu", "X-B": "written"}


@pytest.mark.parametrize(
    ("target", "part"),
    [
        ({"api_key_env": "NOWHERE"}, "NOWHERE is not set. Export NOWHERE="),
        ({"api_key_env": "EMPTY"}, "EMPTY is empty"),
        ({"api_key_file": "/nowhere/key"}, "can't read /nowhere/key: No such file"),
        ({"headers_file": "/nowhere/h"}, "target.headers_file: can't read"),
        ({"headers": {"X": "${env:NOWHERE}"}}, "target.headers.X: the environment variable NOWHERE"),
        ({"headers": {"X": "${file:/nowhere/x}"}}, "target.headers.X: can't read"),
        ({"headers": {"X": "${env:}"}}, "names nothing"),
        ({"headers": {"X": "${vault:a}"}}, "no ${env:NAME} or ${file:PATH}"),
        ({"headers": {"X Y": "1"}}, "not a header name"),
        ({"headers": {"X": "a\r\nb: c"}}, "line end"),
        ({"headers": {"Host": "x"}}, "written by the transport"),
        ({"headers": {"Authorization": "Bearer x"}, "api_key_env": "TOKEN"}, "already has an Authorization"),
        ({"api_key_env": "TOKEN", "api_key_file": "/x"}, "Remove one of them"),
    ],
)
def test_what_is_missing_or_wrong_is_told_with_the_next_step(target: dict[str, Any], part: str) -> None:
    assert part in "\n".join(errors_of(target))


def test_all_errors_are_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("no colon here\nX: ${env:A}\n")
    errors = errors_of({"headers_file": str(file), "headers": {"Y": "${env:B}"}, "api_key_env": "C"})
    assert len(errors) == 4
    assert any(f"{file}:1: no colon" in error for error in errors)


def test_a_secret_with_a_line_end_is_refused_without_being_shown() -> None:
    errors = errors_of({"api_key_env": "K"}, {"K": "top\r\nsecret: 1"})
    assert "line end" in errors[0]
    assert "top" not in errors[0]


def test_an_empty_key_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("\n")
    assert "it is empty" in errors_of({"api_key_file": str(file)})[0]


def test_a_binary_key_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"\xff\xfe")
    assert "not a UTF-8 text file" in errors_of({"api_key_file": str(file)})[0]


def test_headers_show_names_but_never_values() -> None:
    headers, _ = resolve({"api_key_env": "TOKEN"}, ENV)
    for text in (repr(headers), str(headers), f"{headers!r}", repr([headers])):
        assert "tok-abcdef" not in text
        assert "Authorization" in text
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(headers)


def test_a_key_written_in_the_clear_is_redacted_too() -> None:
    headers, _ = resolve({"headers": {"Authorization": "Bearer clear-key"}}, {})
    assert Redactor(headers.secret_values).redact("bad key clear-key") == f"bad key {MASK}"


def test_short_values_are_masked_where_they_stand_alone_and_the_shortest_never() -> None:
    assert Redactor(["on"]).redact("on and on") == "on and on"
    assert Redactor(["acme"]).redact("tenant acme, of acmeland: 'acme'") == f"tenant {MASK}, of acmeland: '{MASK}'"


def test_only_credential_headers_are_sensitive() -> None:
    headers = [("X-Api-Key", "abcdef"), ("accept", "text/plain"), ("Authorization", "Bearer 123456")]
    assert sensitive_values(headers) == {"abcdef", "Bearer 123456", "123456"}


@given(st.text(max_size=30), st.lists(st.text(min_size=6, max_size=10), max_size=4), st.text(max_size=30))
def test_no_secret_survives_redaction(before: str, secrets: list[str], after: str) -> None:
    text = Redactor(secrets).redact(before + "".join(secrets) + after)
    assert not any(secret in text.replace(MASK, "\0") for secret in secrets)


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ("Bearer sk-0123456789", {"sk-0123456789"}),
        ("token sk-0123456789", {"sk-0123456789"}),
        ("Basic " + base64.b64encode(b"me:letmein-99").decode(), {"letmein-99", "me:letmein-99"}),
    ],
)
def test_what_follows_a_scheme_is_secret_whatever_the_name_of_the_header(value: str, parts: set[str]) -> None:
    for target in ({"headers": {"X-Upstream": "${env:IT}"}}, {"api_key_env": "IT"}):
        KNOWN.learn(resolve(target, {"IT": value})[0].secret_values)
        assert {redact(f"no {part}!") for part in parts} == {f"no {MASK}!"}


def test_values_of_a_query_are_known_except_those_of_plain_names() -> None:
    learn_target((), {}, "https://h/v1?code=fUnc%2FKey99&q=anything-1&model=gpt-tiny&api-version=2024-02-01")
    said = "POST /v1?code=fUnc%2FKey99&q=anything-1&model=gpt-tiny&api-version=2024-02-01 fUnc/Key99"
    assert redact(said) == (f"POST /v1?code={MASK}&q={MASK}&model=gpt-tiny&api-version=2024-02-01 {MASK}")


def test_a_header_that_repeats_the_host_or_the_model_makes_no_secret_of_it() -> None:
    headers = [
        ("X-Forwarded-Host", "gateway"),
        ("X-Model", "tiny-model"),
        ("X-Other", "whatever"),
        ("X-Auth", "tiny-model-key"),
    ]
    learn_target(headers, {}, "http://gateway:8080/v1", (), ("tiny-model",))
    assert redact("gateway tiny-model whatever tiny-model-key") == f"gateway tiny-model {MASK} {MASK}"


def test_urls_in_a_command_lose_user_and_query_wherever_they_stand() -> None:
    KNOWN.learn(["tElling77"])  # so that the word is no longer the URL as it was given
    words = ["--url", "http://h/v1?k=tElling77&z=a,b", "--url=http://me:pw@h?z=1", "--arm", "a=http://h/?z=1,model=m"]
    assert public_command(words) == [
        "--url", f"http://h/v1?{MASK}", f"--url=http://{MASK}@h?{MASK}", "--arm", f"a=http://h/?{MASK},model=m",
    ]  # fmt: skip


def test_iterating_gives_the_pairs() -> None:
    assert list(Headers((("a", "b"),), frozenset())) == [("a", "b")]
