"""Audio over HTTP, pictures as binary tensors and the generic WebSocket protocol, through whole runs against the
bundled server.

One server with three models; each run takes a second or two.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.slo.records import tables
from plimsoll.slo.records.records import Records, Status
from tests.e2e.plimsoll import Server, only_late, plimsoll_here, server

pytestmark = pytest.mark.e2e
MS = 1_000_000


@pytest.fixture(scope="module")
def served() -> Iterator[Server]:
    pytest.importorskip("torch", reason="resnet50 needs torch")
    with server("--model", "recogniser", "--model", "synthesiser", "--model", "resnet50") as running:
        yield running


def run(tmp_path: Path, served: Server, protocol: str, model: str, source: dict[str, Any], **more: Any) -> Records:
    """One run of a few requests, all of which must have succeeded unless ``expect`` says another exit code."""
    expect, queries = more.pop("expect", 0), more.pop("queries", 4)
    scenario = {
        "name": "x",
        "kind": "concurrency",
        "params": {"concurrency": 2},
        "target": {"url": served.url, "protocol": protocol, "model": model, "options": more.pop("options", {})},
        "source": source,
        "stop": {"min_queries": queries, "max_queries": queries, "min_duration": 0},
        "timeout": "20s",
        **more,
    }
    (tmp_path / "s.json").write_text(json.dumps(scenario))
    done = plimsoll_here("run", "s.json", "--out", "r", "--json", cwd=tmp_path)
    assert done.returncode == expect or (expect == 0 and only_late(tmp_path / "r")), done.stderr  # a busy machine
    return tables.load(tmp_path / "r")


SPEECH = {
    "kind": "audio",
    "words": 5,
    "slices": [{"name": "clean"}, {"name": "buried", "noise_db": -20}],
    "paired": True,
}
TEXT = {"kind": "synthetic_text", "prompt_tokens": 6, "count": 4}


@pytest.mark.parametrize(("stream", "engine"), [(False, "native"), (True, "python")])
def test_uploads_are_transcribed_and_compared_with_what_was_said(
    tmp_path: Path, served: Server, stream: bool, engine: str
) -> None:
    options = {"stream": stream, "engine": engine}
    records = run(
        tmp_path, served, "openai-transcriptions", "recogniser", {**SPEECH, "count": 2}, options=options, queries=16
    )
    assert records.ok.all()
    errors = {
        name: int(records["word_errors"][[text == name for text in records.texts("slice")]].sum())
        for name in ("clean", "buried")
    }
    assert records["words"].tolist() == [5] * 16
    assert errors["clean"] == 0
    assert errors["buried"] > 0
    assert (records["pace"] == 0).all()
    clean = np.array([text == "clean" for text in records.texts("slice")])
    assert (np.diff(records.chunk_offsets)[clean] >= 1).all() == stream
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    assert report["metrics"]["rtf"]["n"] == 16
    assert 0 < report["metrics"]["rtf"]["p50"] < 1


def test_speech_is_timed_by_its_samples_and_sounds_equally_long_in_every_format(tmp_path: Path, served: Server) -> None:
    lengths = []
    for i, options in enumerate([{}, {"response_format": "wav"}, {"stream_format": "sse"}]):
        folder = tmp_path / str(i)
        folder.mkdir()
        records = run(folder, served, "openai-speech", "synthesiser", TEXT, options=options)
        assert records.ok.all()
        assert (records["first_audio_ns"] >= records["first_byte_ns"]).all()
        assert (records["audible_ns"] >= records["first_audio_ns"]).all()
        values, offsets = records.ragged("chunk_audio_ns")
        assert [int(values[a:b].sum()) for a, b in pairwise(offsets.tolist())] == records["media_out_ns"].tolist()
        # 16 characters a second: some six words are seconds of sound.
        assert (records["media_out_ns"] > 1000 * MS).all()
        assert (records["first_token_ns"] == -1).all()
        lengths.append(sorted(zip(records["payload_ix"].tolist(), records["media_out_ns"].tolist(), strict=True)))
    assert lengths[0] == lengths[1] == lengths[2]


def test_pictures_go_out_as_binary_tensors(tmp_path: Path, served: Server) -> None:
    pytest.importorskip("PIL", reason="resnet50 needs Pillow")
    source = {"kind": "image", "count": 2}
    records = run(tmp_path, served, "kserve-v2", "resnet50", source, options={"binary": True}, timeout="60s")
    assert records.ok.all(), records.texts("error")
    assert (records["bytes_out"] > 3000).all()
    assert (records["bytes_in"] > 300).all()


LISTEN = {
    "path": "/v1/listen?encoding=linear16&sample_rate=16000&interim_results=true",
    "closing": ['{"type":"CloseStream"}'],
    "text_path": "channel.alternatives[0].transcript",
    "final_path": "is_final",
    "audio": {"frame": "40ms"},
}


def test_a_live_protocol_is_described_without_code(tmp_path: Path, served: Server) -> None:
    source = {"kind": "audio", "words": 3, "count": 2, "trail": "200ms"}
    records = run(tmp_path, served, "websocket", "recogniser", source, options=LISTEN)
    assert records.ok.all(), records.texts("error")
    assert records["word_errors"].tolist() == [0] * 4
    assert (records["pace"] == 1).all()
    # Nothing can be heard before it was said, and the sentence is final only after its end.
    assert (records["first_partial_ns"] > records["speech_start_ns"]).all()
    assert (records["final_ns"] > records["speech_end_ns"]).all()
    assert (records["input_end_ns"] >= records["speech_end_ns"]).all()
    lags, offsets = records.ragged("frame_lag_ns")
    assert (lags >= 0).all()
    planned = np.ceil(records["media_ns"] / (40 * MS)).astype(int).tolist()
    assert np.diff(offsets).tolist() == planned


def test_a_wrong_path_is_a_refused_handshake_and_says_so(tmp_path: Path, served: Server) -> None:
    source = {"kind": "audio", "words": 2, "count": 1}
    options = {**LISTEN, "path": "/v1/nothing"}
    records = run(tmp_path, served, "websocket", "recogniser", source, options=options, expect=1)
    assert (records["status"] == Status.HTTP).all()
    assert all("404" in str(text) for text in records.texts("error"))


def test_text_for_an_audio_protocol_is_refused_before_anything_is_sent(tmp_path: Path, served: Server) -> None:
    scenario = {
        "name": "x",
        "kind": "concurrency",
        "target": {"url": served.url, "protocol": "openai-transcriptions", "model": "recogniser"},
        "source": TEXT,
    }
    (tmp_path / "s.json").write_text(json.dumps(scenario))
    done = plimsoll_here("run", "s.json", "--out", "r", cwd=tmp_path)
    assert done.returncode == 2
    assert "source of kind audio" in done.stderr
    assert "Traceback" not in done.stderr
