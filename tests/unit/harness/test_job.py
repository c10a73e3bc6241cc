"""From flags and files to a checked job: everything wrong at once, and nothing secret written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.run.job import Prepared, prepare


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def scenario_file(text: str) -> str:
    Path("s.yaml").write_text(text)
    return "s.yaml"


def faults(*arguments: object, **flags: object) -> str:
    with pytest.raises(HarnessFault) as caught:
        prepare(*arguments, flags, [], [], None)  # type: ignore[arg-type]
    return "\n".join(caught.value.errors)


def test_a_file_with_errors_in_every_part_reports_them_all() -> None:
    said = faults(
        scenario_file(
            "kind: server\nparams: {rate: -3, arival: poisson}\nstop: {min_querys: 3}\n"
            "target: {protocol: openai-chat, options: {foo: 1, max_connections: 0}}\n"
            'objectives: ["p99(ttft) <= 200", "p99(nope) <= 1ms"]\n'
        )
    )
    for part in ("rate", "arival", "min_querys", "foo", "max_connections", "bare number", "nope"):
        assert part in said
    assert not Path("runs").exists()


def test_a_format_file_that_cannot_be_written_is_an_error_and_one_that_can_is_not_created_in_vain() -> None:
    with pytest.raises(HarnessFault, match="nowhere"):
        prepare(None, {"url": "http://h:1"}, [], ["json=/nowhere/x", "csv=ok.csv"], None)
    assert not Path("ok.csv").exists()


def ready(text: str) -> Prepared:
    return prepare(scenario_file(text), {}, [], [], Path("out"), command=["plimsoll", "run"])


def test_a_literal_credential_in_the_protocols_own_headers_is_masked_where_it_is_written_down() -> None:
    job = ready(
        "kind: single_stream\ntarget:\n  url: http://127.0.0.1:1\n  protocol: http\n  options: "
        "{path: /x, headers: {X-Api-Token: abcdef-literal-secret, X-Plain: yes-please}, max_outstanding: 7}\n"
    ).job
    written = str(job.public)
    assert "abcdef-literal-secret" not in written
    assert "yes-please" not in written  # nobody knows what a header of no known name holds
    assert job.target.max_outstanding == 7
    assert job.target.options["headers"]["X-Api-Token"] == "abcdef-literal-secret"


def test_names_that_only_sound_like_credentials_are_left_alone() -> None:
    job = ready(
        "kind: single_stream\ntarget: {url: 'http://127.0.0.1:1', options: {max_tokens_field: max_completion_tokens}}\n"
    ).job
    assert job.public["target"]["options"]["max_tokens_field"] == "max_completion_tokens"


def test_a_secret_from_the_environment_is_masked_in_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", "sk-0123456789abcdef")
    flags = {"url": "http://127.0.0.1:1", "api_key_env": "THE_KEY"}
    job = prepare(None, flags, [], [], Path("out"), command=["plimsoll", "--x", "sk-0123456789abcdef"]).job  # type: ignore[arg-type]
    assert job.command == ["plimsoll", "--x", "[redacted]"]
    assert ("Authorization", "Bearer sk-0123456789abcdef") in job.target.headers


@pytest.mark.parametrize("key", ["gateway", "openai", "single_stream", "synthetic_text", "random"])
def test_a_key_that_is_a_word_of_ours_or_the_hosts_name_spoils_nothing_that_is_kept(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("THE_KEY", key)
    flags = {"kind": "single_stream", "url": f"http://gateway:8080/{key}/v1?q={key}", "api_key_env": "THE_KEY"}
    kept = prepare(None, flags, [], [], Path("out"), command=["plimsoll"]).job.public  # type: ignore[arg-type]
    assert kept["target"]["url"] == "http://gateway:8080/[redacted]/v1"
    assert kept["target"]["protocol"] == "openai-chat"
    assert kept["kind"] == "single_stream"
    assert kept["source"]["kind"] == "synthetic_text"
    assert kept["params"] == {"order": "random"}


def test_a_run_directory_that_is_not_empty_is_refused() -> None:
    Path("full").mkdir()
    Path("full/x").touch()
    with pytest.raises(HarnessFault, match="not empty"):
        prepare(None, {"url": "http://127.0.0.1:1"}, [], [], Path("full"))


def test_without_a_url_the_bundled_server_is_meant_except_for_protocols_that_need_none() -> None:
    assert prepare(None, {"queries": 3}, [], [], Path("a")).job.bundled is not None
    assert prepare(None, {"queries": 3, "protocol": "null"}, [], [], Path("b")).job.bundled is None
    assert prepare(None, {"queries": 3, "url": "http://127.0.0.1:1"}, [], [], Path("c")).job.bundled is None


def test_what_the_bundled_server_does_not_speak_needs_a_url_and_the_error_names_what_it_does() -> None:
    said = faults(None, queries=3, protocol="vosk", options={"nope": 1})
    assert "does not speak vosk. Give the URL" in said
    assert "deepgram-listen" in said
    assert "openai-chat" not in said
    assert "nope" in said  # with everything else that is wrong
    assert prepare(None, {"protocol": "vosk", "url": "ws://127.0.0.1:1"}, [], [], Path("a")).job.bundled is None


@pytest.mark.parametrize("protocol", ["http", "websocket"])
def test_without_a_url_a_protocol_of_any_route_needs_the_route(protocol: str) -> None:
    assert "no URL and no route" in faults(None, queries=3, protocol=protocol)
    flags = {"queries": 3, "protocol": protocol, "options": {"path": "/v1/listen"}}
    assert prepare(None, flags, [], [], Path("a")).job.bundled is not None  # type: ignore[arg-type]


def test_a_bad_flag_hides_no_bad_option_nor_a_bad_protocol() -> None:
    said = faults(None, rate=-1.0, protocol="deepgram-listen", options={"nope": 1, "audio": {"pace": "fast"}})
    assert "--rate" in said
    assert "--option nope" in said
    assert "--option audio.pace" in said
    assert "Did you mean deepgram-listen" in faults(None, rate=-1.0, protocol="deepgramm-listen")


def test_credentials_in_a_urls_query_and_in_option_flags_are_written_nowhere() -> None:
    flags = {
        "url": "http://127.0.0.1:1/v1?api_key=query-secret-1",
        "protocol": "http",
        "options": {"path": "/x", "headers": {"Authorization": "Bearer option-secret-2"}},
    }
    command = ["plimsoll", "--url", flags["url"], "--option", "headers={Authorization: Bearer option-secret-2}"]
    job = prepare(None, flags, [], [], Path("out"), command=command).job  # type: ignore[arg-type]
    for secret in ("query-secret-1", "option-secret-2"):
        assert secret not in str(job.public)
        assert secret not in str(job.command)
        assert secret in str(job.target.url) + str(job.target.options)


def test_the_engine_is_one_of_three_and_native_is_refused_where_it_can_not_be_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def of(engine: str, url: str = "http://127.0.0.1:1", protocol: str = "http") -> str:
        return f"kind: single_stream\ntarget: {{url: '{url}', protocol: '{protocol}', options: {{engine: {engine}}}}}\n"

    assert "engine: 'fast' is none of auto, native, python" in faults(scenario_file(of("fast")))
    assert "engine: the native engine speaks no TLS" in faults(scenario_file(of("native", "https://127.0.0.1:1")))
    assert "engine: the native engine speaks HTTP only" in faults(scenario_file(of("native", protocol="null")))
    monkeypatch.setattr("plimsoll.harness.generator.native.available", lambda: False)
    assert "engine: the native engine is not compiled here" in faults(scenario_file(of("native")))
    assert ready(of("python")).job.target.engine == "python"


def test_neither_command_nor_scenario_keeps_a_url_query_or_a_header_that_may_be_a_credential() -> None:
    url = "http://127.0.0.1:1/v1?token=ab%2Fcd%7Eef%20gh&v=1"
    flags = {
        "url": url,
        "headers": {"X-Auth": "letmein-9", "X-Pin": "0420", "X-Ref": "Bearer ${env:HOME}", "accept": "text/plain"},
    }
    words = [
        "plimsoll",
        "run",
        f"--url={url}",
        "--header",
        "X-Auth: letmein-9",
        "--header=x-pin:0420",
        "--rate",
        "0420",
        "--header",
    ]
    job = prepare(None, flags, [], [], Path("out"), command=[*words, "accept: text/plain"]).job  # type: ignore[arg-type]
    assert job.command == [
        "plimsoll", "run", "--url=http://127.0.0.1:1/v1?[redacted]", "--header", "X-Auth: [redacted]",
        "--header=x-pin:[redacted]",
        "--rate", "0420", "--header", "accept: text/plain",
    ]  # fmt: skip
    assert job.public["target"]["headers"] == {
        "X-Auth": "[redacted]", "X-Pin": "[redacted]", "X-Ref": "Bearer ${env:HOME}", "accept": "text/plain",
    }  # fmt: skip
    written = str(job.public)
    assert not [text for text in ("cd%7E", "cd~ef", "letmein", "0420") if text in written]


def test_a_value_that_a_run_did_not_keep_is_asked_for_again() -> None:
    assert "Give it again: --header 'X-Auth: ...'" in faults(
        None, url="http://127.0.0.1:1", headers={"X-Auth": "[redacted]"}
    )
