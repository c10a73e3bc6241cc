"""From flags and files to a checked job with its promises: everything wrong at once, and nothing secret written
down.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.run.contradictions import check_accuracy
from plimsoll.harness.run.job import Prepared, prepare
from plimsoll.harness.run.promises import Asked, again, keep, kept, read_promises
from plimsoll.harness.run.rundir import RunDirectory, Sealed
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.scenarios.scenario import Scenario
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.slo.objectives import openslo
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records.records import empty
from plimsoll.slo.validity.generator import GeneratorFacts


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


# -- promises -------------------------------------------------------------------------------------------------------


def sealed(folder: Path, *objectives: str) -> Sealed:
    facts = GeneratorFacts(open_loop=True, planned=0)
    return Sealed(RunDirectory(folder), {}, {"objectives": list(objectives)}, empty(), facts)


def test_everything_that_can_be_promised_goes_into_the_run_directory_and_comes_back(tmp_path: Path) -> None:
    document = tmp_path / "slo.yaml"
    document.write_text(openslo.starter(), encoding="utf-8")
    (tmp_path / "list.yaml").write_text("objectives: ['p50(latency) <= 1s over 4w']", encoding="utf-8")
    asked = Asked(
        ["ratio(good) >= 99%", str(document), str(tmp_path / "list.yaml")],
        "ttft:200 tpot:50",
        ["mlperf/llama3.1-8b/server"],
        None,
        80.0,
    )
    made, errors = read_promises(asked)
    assert errors == []
    assert len(made.slos) == 3
    assert made.texts == [
        "ratio(good) >= 99%",
        "p50(latency) <= 1s over 4w",
        "p99(ttft) <= 2000ms",
        "p99(tpot) <= 100ms",
        "ttft <= 200ms",
        "tpot <= 50ms",
    ]
    assert made.confidence == "0.99"  # LoadGen's
    keep(made, RunDirectory(tmp_path))
    back = kept(sealed(tmp_path))
    assert back.to_json() == made.to_json()
    assert [slo.name for slo in back.slos] == [slo.name for slo in made.slos]


def test_every_mistake_of_every_flag_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("apiVersion: openslo/v1\nkind: SLO\nmetadata: {name: Bad_Name}\nspec: {}\n")
    asked = Asked(["p99(tftt) <= 1ms", str(tmp_path / "bad.yaml"), str(tmp_path / "none.yaml")], "x:1", ["mlperf/x"],
        "2", -1.0)  # fmt: skip
    _, errors = read_promises(asked)
    for flag in ("--slo 'p99(tftt)", "--goodput 'x:1'", "--preset ", "--confidence 2", "--production-rate -1.0"):
        assert any(error.startswith(flag) for error in errors), flag
    assert sum("bad.yaml" in error for error in errors) >= 3
    assert any("none.yaml" in error for error in errors)


def test_what_is_promised_twice_counts_once(tmp_path: Path) -> None:
    """Each objective more makes a FAIL harder to show, so a repeated one must not count."""
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(openslo.starter(), encoding="utf-8")
    asked = ["p99(ttft) <= 1s", str(tmp_path / "a.yaml"), "p99( ttft ) <= 1s", str(tmp_path / "b.yaml")]
    made, errors = read_promises(Asked(asked))
    assert (errors, made.texts, len(made.slos), len(made.documents)) == ([], ["p99(ttft) <= 1s"], 3, 1)


def test_two_slos_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(openslo.starter(), encoding="utf-8")
    (tmp_path / "b.yaml").write_text(openslo.starter().replace("value: 500", "value: 900"), encoding="utf-8")
    _, errors = read_promises(Asked([str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")]))
    assert len(errors) == 3
    assert all("Rename one of them" in line and "b.yaml" in line for line in errors)


def test_a_preset_without_a_limit_is_refused_alone_for_it_would_judge_nothing() -> None:
    alone = Asked(preset=["mlperf/whisper/offline"])
    assert "nothing to judge" in read_promises(alone)[1][0]
    assert read_promises(Asked(["rate(ok) >= 1/s"], preset=["mlperf/whisper/offline"]))[1] == []


def test_an_explicit_confidence_outdoes_the_presets() -> None:
    assert read_promises(Asked(preset=["mlperf/resnet50/server"], confidence="0.9"))[0].confidence == "0.9"


def test_a_key_in_the_url_that_hedges_go_to_is_written_nowhere() -> None:
    to = "http://127.0.0.1:1/v1?api_key=hedge-secret-1"
    file = scenario_file(
        f"kind: server\ntarget: {{url: http://127.0.0.1:1}}\nclient: {{hedge: {{after: 30ms, to: '{to}'}}}}\n"
    )
    job = prepare(file, {}, [], [], Path("out")).job  # type: ignore[arg-type]
    client = job.scenario.client
    assert client is not None
    assert client.hedge is not None
    assert client.hedge.to == to
    assert job.public["client"]["hedge"]["to"] == "http://127.0.0.1:1/v1"
    assert "hedge-secret-1" not in str(job.public)


@pytest.mark.parametrize("text", ["0.95", "0.5", "0.999"])
def test_a_confidence_is_a_number_from_a_half_to_below_one(text: str) -> None:
    assert read_promises(Asked(confidence=text))[1] == []


@pytest.mark.parametrize("text", ["1", "0.49", "95", "nan", "often", "95%"])
def test_any_other_confidence_is_refused(text: str) -> None:
    assert "--confidence" in read_promises(Asked(confidence=text))[1][0]


def test_limits_alone_are_refused_but_vllms_goodput_alone_only_reports() -> None:
    assert "nothing says how many must be" in read_promises(Asked(["ttft <= 1s"]))[1][0]
    made, errors = read_promises(Asked(goodput="ttft:200"))
    assert (errors, [one.scope for one in made.objectives]) == ([], ["request"])


def test_a_run_without_the_file_is_judged_by_its_scenario(tmp_path: Path) -> None:
    assert kept(sealed(tmp_path, "p50(latency) <= 1s")).texts == ["p50(latency) <= 1s"]


def test_flags_take_the_place_of_what_was_kept_but_confidence_alone_does_not(tmp_path: Path) -> None:
    keep(read_promises(Asked(["p50(latency) <= 1s"]))[0], RunDirectory(tmp_path))
    assert again(Asked(["p50(ttft) <= 1s"]), sealed(tmp_path))[0].texts == ["p50(ttft) <= 1s"]
    surer, _ = again(Asked(confidence="0.99", production_per_s=5.0), sealed(tmp_path))
    assert (surer.texts, surer.confidence, surer.production_per_s) == (["p50(latency) <= 1s"], "0.99", 5.0)


WHOLE = (
    '{"schema": "plimsoll.promises/1", "objectives": [], "openslo": [], "confidence": "0.95", "production_per_s": null, '  # noqa: E501
    '"presets": []}'
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": "plimsoll.promises/2"}',
        '{"schema": 3, "objectives": 1}',
        WHOLE.replace("0.95", "7"),
        WHOLE.replace("0.95", "often"),
        WHOLE.replace("null", "-1"),
        WHOLE.replace('"presets": []', '"presets": ["mlperf/none"]'),
    ],
)
def test_a_damaged_file_is_one_clear_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "promises.json").write_text(text)
    with pytest.raises(HarnessFault, match="Give the objectives with --slo") as caught:
        kept(sealed(tmp_path))
    assert "\n" not in caught.value.errors[0]


# -- promises on word errors ----------------------------------------------------------------------------------------


@dataclass
class Source:
    payloads: list[Payload]

    def __len__(self) -> int:
        return len(self.payloads)

    def payload(self, index: int) -> Payload:
        return self.payloads[index]


@dataclass
class Run:
    """The parts of a scenario that are looked at."""

    source: Source | None
    mode: str = "performance"
    reference: str | None = None
    answers: bool = False

    @property
    def classes(self) -> dict[str, Run]:
        return {"": self}

    def source_object(self) -> Source:
        if self.source is None:
            raise ScenarioError(["source.path: no such file"])
        return self.source


def errors(run: Run, *texts: str) -> list[str]:
    return check_accuracy(cast(Scenario, cast(Any, run)), [parse(text) for text in texts])


CLIP = Payload(media_ns=10**9, reference="hello world")


def test_a_load_run_of_speech_counts_its_words() -> None:
    assert errors(Run(Source([CLIP])), "accuracy(wer) <= 5%", "p95(finalization) <= 800ms") == []


@pytest.mark.parametrize(
    "source", [Source([Payload(prompt="hi", reference="ho")]), Source([Payload(media_ns=5)]), Source([]), None]
)
def test_without_audio_and_a_transcript_it_needs_accuracy_mode(source: Source | None) -> None:
    (error,) = errors(Run(source), "accuracy(wer) <= 5%")
    assert "accuracy(wer) <= 5%: the run keeps no answers" in error


def test_other_objectives_on_answers_still_need_accuracy_mode() -> None:
    (error,) = errors(Run(Source([CLIP])), "accuracy(wer) <= 5%", "accuracy(exact_match) >= 90%")
    assert error.startswith("accuracy(exact_match) >= 90%: the run keeps no answers")


def traceparent(given: object, **target: object) -> float | None:
    """What a run with this option, and more of the target, does."""
    flags = {"url": "http://127.0.0.1:1", "options": {} if given is None else {"traceparent": given}, **target}
    return prepare(None, flags, [], [], None, command=["plimsoll", "run"]).job.target.traceparent


def test_requests_carry_a_trace_context_unless_the_run_says_otherwise() -> None:
    assert [traceparent(said) for said in (None, "10%", 0.25, 0, False)] == [0.01, 0.1, 0.25, 0.0, None]
    assert traceparent(None, headers={"TraceParent": "00-1-2-01"}) is None
    for wrong in ("much", "101%", -1):
        with pytest.raises(HarnessFault, match=r"--option traceparent: .* is no share of requests"):
            traceparent(wrong)
