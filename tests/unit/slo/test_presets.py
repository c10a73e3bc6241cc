"""Presets: every limit of SEMANTICS A.10, readable as objectives, with its source; unknown names are helped along."""

from __future__ import annotations

import pytest

from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.objectives.presets import UnknownPresetError, listing, preset, presets, table

SECOND = 1_000_000_000

#: SEMANTICS A.10: model -> (TTFT, TPOT) of server and interactive, ms.
TOKENS = {
    "llama2-70b": ((2000, 200), (450, 40)),
    "llama3.1-8b": ((2000, 100), (500, 30)),
    "llama3.1-405b": ((6000, 175), (4500, 80)),
    "mixtral-8x7b": ((2000, 200), None),
    "deepseek-r1": ((2000, 80), (1500, 15)),
    "gpt-oss-120b": ((3000, 80), (2000, 15)),
}
#: The same: name -> end-to-end limit, ms.
WHOLE = {
    "qwen3-vl-235b/server": 12_000,
    "qwen3-vl-235b/interactive": 1500,
    "dlrm-v3/server": 80,
    "dlrm-v2/server": 60,
    "resnet50/server": 15,
    "retinanet/server": 100,
    "bert/server": 130,
    "rnnt/server": 1000,
    "gptj/server": 20_000,
    "stable-diffusion-xl/server": 20_000,
}


def limits(name: str) -> dict[str, float]:
    return {o.indicator: o.threshold / 1e6 for o in map(parse, preset(name).objectives)}


@pytest.mark.parametrize("model", TOKENS)
def test_a_language_model_has_the_published_ttft_and_tpot(model: str) -> None:
    server, interactive = TOKENS[model]
    assert limits(f"mlperf/{model}/server") == {"ttft": server[0], "tpot": server[1]}
    if interactive is None:
        assert f"mlperf/{model}/interactive" not in presets()
    else:
        assert limits(f"mlperf/{model}/interactive") == {"ttft": interactive[0], "tpot": interactive[1]}


@pytest.mark.parametrize("name", WHOLE)
def test_other_models_have_one_limit_from_end_to_end(name: str) -> None:
    assert limits(f"mlperf/{name}") == {"latency": WHOLE[name]}


def test_offline_has_no_latency_limit() -> None:
    offline = [one for one in presets().values() if one.scenario in ("offline", "single_stream")]
    assert {"mlperf/whisper/offline", "mlperf/wan-2.2/single_stream"} <= {one.name for one in offline}
    assert not [one.name for one in offline if one.objectives]


SPEECH = [name for name in presets() if name.startswith("speech/")]


@pytest.mark.parametrize("name", SPEECH)
def test_a_published_target_of_speech_can_be_read_and_says_where_it_is_from(name: str) -> None:
    one = preset(name)
    assert len(one.source) > 30
    assert one.notes
    assert (one.scenario, one.min_duration_ns, one.min_queries, one.confidence) == ("", 0, 0, "0.95")
    assert [str(parse(text)) for text in one.objectives] == list(one.objectives)
    assert one.source in table()


def test_the_rule_of_300_ms_is_several_rules_that_count_from_different_moments() -> None:
    meant = {name: limits(name) for name in SPEECH if "/300ms-" in name}
    assert meant == {
        "speech/300ms-first-partial": {"first_partial": 300, "finalization": 800},
        "speech/300ms-transcription": {"transcript_lag": 300},
        "speech/300ms-first-audio": {"first_audio_perceived": 300},
        "speech/300ms-voice-to-voice": {"voice_to_voice": 300},
    }
    with pytest.raises(
        UnknownPresetError, match="Did you mean speech/300ms-first-partial or speech/300ms-transcription"
    ):
        preset("300ms")


def test_a_target_for_anybody_s_run_asks_for_no_kind_and_no_length() -> None:
    assert preset("speech/voice-agent").shortfalls("concurrency", 0, 1) == ()


@pytest.mark.parametrize("name", [name for name in presets() if name not in SPEECH])
def test_every_preset_can_be_read_and_says_where_it_is_from(name: str) -> None:
    one = preset(name)
    assert one.source
    assert one.min_duration_ns == 600 * SECOND
    assert one.confidence == "0.99"
    for text in one.objectives:
        assert str(parse(text)) == text
        assert parse(text).statistic == "p99"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpt-oss-120b/interactive", "20 ms"),
        ("dlrm-v3/server", "60 s"),
        ("wan-2.2/offline", "248"),
        ("3d-unet/offline", "42"),
        ("qwen3-vl-235b/interactive", "only the submission checker"),
    ],
)
def test_where_sources_disagree_a_note_says_so(name: str, said: str) -> None:
    assert said in " ".join(preset(f"mlperf/{name}").notes)


def test_an_unknown_name_is_helped_along() -> None:
    with pytest.raises(UnknownPresetError, match="Did you mean mlperf/llama2-70b/server"):
        preset("mlperf/llama2-70/server")
    with pytest.raises(UnknownPresetError, match="Did you mean mlperf/whisper/offline"):
        preset("whisper")
    with pytest.raises(UnknownPresetError, match="plimsoll slo presets"):
        preset("")


def test_a_run_that_is_too_short_is_no_mlperf_result() -> None:
    one = preset("mlperf/llama3.1-8b/server")
    assert one.shortfalls("server", 600 * SECOND, 100) == ()
    (said,) = one.shortfalls("server", 60 * SECOND, 662)
    assert "at least 600 s, not 60 s" in said
    assert "an MLPerf result it is not" in said
    assert len(one.shortfalls("concurrency", 0, 1)) == 3
    assert "samples" in preset("mlperf/whisper/offline").shortfalls("offline", 600 * SECOND, 1632)[0]


def test_the_listing_holds_every_preset() -> None:
    assert [entry["name"] for entry in listing()] == list(presets())
    assert all(name in table() for name in presets())
    assert {"objectives", "source", "notes", "scenario", "min_duration_ns", "min_queries"} <= set(listing()[0])
