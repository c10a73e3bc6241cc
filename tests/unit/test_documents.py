"""Files that are none, files without end, and YAML that grows: refused at once, in words, by every reader alike."""

from __future__ import annotations

import os
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plimsoll.documents import files
from plimsoll.documents.text import plain, written
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.run.job import check_file, prepare
from plimsoll.harness.run.promises import Asked, read_promises
from plimsoll.harness.secrecy.secrets import resolve
from plimsoll.harness.series.comparison import bakeoff_file as bakeoff
from plimsoll.scenarios import spec
from plimsoll.scenarios.samples.traces import read as read_trace
from plimsoll.scenarios.text.document import read_document
from plimsoll.slo.objectives import objective


def scenario(path: Path) -> object:
    return check_file(str(path))


def a_bakeoff(path: Path) -> object:
    return bakeoff.load(path)


def objectives(path: Path) -> object:
    return objective.load_file(path)


def trace(path: Path) -> object:
    return read_trace(path, "source.path", "jsonl")


READERS = (scenario, a_bakeoff, objectives, trace)


def fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def a_socket(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
    return path


KINDS: dict[str, Callable[[Path], Path]] = {
    "it is a pipe": fifo,
    "it is a socket": a_socket,
    "it is a folder": lambda path: path.mkdir() or path,
    "it is a device": lambda path: path.symlink_to("/dev/zero") or path,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("what", KINDS)
def test_what_is_no_file_is_refused_before_a_byte_of_it_is_read(
    reader: Callable[[Path], object], what: str, tmp_path: Path
) -> None:
    path = KINDS[what](tmp_path / "x.yaml")
    began = time.monotonic()
    with pytest.raises((HarnessFault, spec.ScenarioError, objective.ObjectiveError), match=what):
        reader(path)
    assert time.monotonic() - began < 5


def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(spec.ScenarioError, match="larger than 1 MiB"):
        spec.load(path)


def test_no_room_is_made_for_more_than_a_file_has_and_one_that_grew_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 GiB for an empty file is an error where memory is limited (ulimit -v)."""
    (tmp_path / "empty").touch()
    tracemalloc.start()
    assert files.read_bytes(tmp_path / "empty") == b""
    assert tracemalloc.get_traced_memory()[1] < 1 << 22
    tracemalloc.stop()
    (tmp_path / "grown").write_bytes(b"x" * 3_000_000)
    true_size = os.fstat
    monkeypatch.setattr(os, "fstat", lambda file: os.stat_result([*list(true_size(file))[:6], 10, 0, 0, 0]))
    assert len(files.read_bytes(tmp_path / "grown")) == 3_000_000
    with pytest.raises(OSError, match="larger than 2 MiB"):
        files.read_bytes(tmp_path / "grown", 2 << 20)


def test_a_secret_may_come_through_a_pipe_and_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fifo(tmp_path / "key")
    writer = threading.Thread(target=path.write_text, args=("sesame\n",))
    writer.start()
    headers, errors = resolve({"api_key_file": str(path)}, {})
    writer.join()
    assert (errors, headers.pairs) == ([], (("Authorization", "Bearer sesame"),))
    monkeypatch.setattr(files, "PATIENCE_S", 0.05)
    assert "nothing more came through this pipe" in resolve({"api_key_file": str(path)}, {})[1][0]


def test_what_came_through_a_pipe_between_two_looks_at_it_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read = fifo(tmp_path / "key"), os.read
    late = [b"sesame\n", b""]

    def read_and_then_a_writer_comes_and_goes(file: int, most: int) -> bytes:
        part = read(file, most)
        if late:
            with path.open("wb") as writer:
                writer.write(late.pop(0))
        return part

    monkeypatch.setattr(os, "read", read_and_then_a_writer_comes_and_goes)
    assert files.read_bytes(path, pipe=True) == b"sesame\n"
    late = [b""]
    assert files.read_bytes(path, pipe=True) == b"", "a writer that has nothing to say is not waited for"


@pytest.mark.parametrize("text", ["[" * 50_000, "a: " + "{b: " * 50_000, "- " * 50_000 + "x"])
def test_yaml_nested_without_end_is_refused_at_once(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("kind: server\nparams:\n  rate: " + text)
    began = time.process_time()
    for reader in (scenario, a_bakeoff, objectives):
        with pytest.raises(
            (HarnessFault, spec.ScenarioError, objective.ObjectiveError), match=r"nested too deep|not YAML"
        ):
            reader(path)
    with pytest.raises(ValueError, match="nested too deep"):
        plain(text)
    assert time.process_time() - began < 5


def test_aliases_that_multiply_are_refused_at_once(tmp_path: Path) -> None:
    levels = [f"b{i}: &b{i} [{', '.join([f'*b{i - 1}'] * 9)}]" for i in range(1, 12)]
    text = "\n".join(["kind: server", "b0: &b0 [x, x]", *levels])
    (tmp_path / "x.yaml").write_text(text)
    began = time.process_time()
    for reader in (scenario, a_bakeoff):
        with pytest.raises((HarnessFault, spec.ScenarioError), match="aliases"):
            reader(tmp_path / "x.yaml")
    with pytest.raises(ValueError, match="aliases"):
        plain(text)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kind: server\nparams:\n  rate: 4\n rate: 5\n", "f.yaml:4:2: not YAML: this line is not indented as its neighbours"),  # noqa: E501
        ("kind: server\nparams:\n  rate: 4\n   x: 5\n", "f.yaml:4:5: not YAML: a second colon in one line, or a key indented"),  # noqa: E501
        ("kind: server\nparams\nstop: 1\n", "f.yaml:3:1: not YAML: a line without a colon among keys"),
        ("name: 'x\n", "f.yaml:2:1: not YAML: a quote is opened and never closed"),
        ("name: @x\n", "f.yaml:1:7: not YAML: a value can't begin with '@'. Put it in quotes"),
        ("name: a\n---\nname: b\n", "f.yaml:3: a second document begins here"),
        ("name: !!timestamp x\n", "f.yaml:1: 'x' can't be read as timestamp"),
        ("name: " + "9" * 5000, "f.yaml:1: '9999"),
        ("a: &x 1\nb: {<<: *x}\n", "f.yaml:2: <<: takes in mappings only"),
    ],
)  # fmt: skip
def test_broken_yaml_is_said_in_our_words_with_line_and_column(text: str, says: str) -> None:
    with pytest.raises(spec.ScenarioError) as raised:
        read_document(text, "f.yaml")
    assert raised.value.errors[0].startswith(says)


def test_what_was_dumped_is_read_as_it_was() -> None:
    assert plain("a: on\nb: 010\nc: [1e3, '1']\nd: &x [1]\ne: *x\n") == {
        "a": True,
        "b": 8,
        "c": ["1e3", "1"],
        "d": [1],
        "e": [1],
    }
    assert plain("") is None
    for text in ("a: [", "!!int x", "2022-99-99", "!!python/name:os.system x", "? {a: b}\n: c"):
        with pytest.raises(ValueError, match="not YAML"):
            plain(text)


def test_lines_are_those_of_the_file() -> None:
    found = next(iter(written("a:\n  - x\n  - b: 1\n\nc: 2\n", objects=False)))
    assert [found.line(path) for path in (("a", 0), ("a", 1, "b"), ("c",), ("c", "nothing"), ("gone",))] == [
        2,
        3,
        5,
        5,
        1,
    ]


# -- mistakes in what a scenario says ------------------------------------------------------------------------------------  # noqa: E501


def errors_of(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(HarnessFault) as raised:
        check_file(str(path))
    assert raised.value.code == 2
    return [error.removeprefix(f"{path}:") for error in raised.value.errors]


def test_every_mistake_is_told_at_once_and_with_its_line(tmp_path: Path) -> None:
    text = (
        "kind: server\nparams:\n  rate: fast\ntarget:\n  url: ftp://h\n  protocol: vllm\n  ca_file: /dev/zero\n  options: text\n"  # noqa: E501
        "objectives:\n  - p99(nothing) <= 1s\n"
    )
    starts = ["3: params.rate: is 'fast', not a number", "8: target.options: is 'text', not a mapping", "9: objectives: ", "6: target.protocol: 'vllm' is unknown. vllm names a server", "5: target.url: 'ftp://h' is not a URL"]  # fmt: skip  # noqa: E501
    errors = errors_of(tmp_path, text)
    assert len(errors) == len(starts)
    for error, start in zip(errors, starts, strict=True):
        assert error.startswith(start)
    good = text.replace("fast", "4").replace("\n  options: text", "").replace("nothing", "ttft")
    assert [error.split(":")[0] for error in errors_of(tmp_path, good)] == ["6", "5"]


def test_certificates_without_tls_are_refused(tmp_path: Path) -> None:
    for url, what in (
        ("http://h:1", "http:// has no certificates to check"),
        ("null", "the bundled server has no certificate"),
    ):
        errors = errors_of(tmp_path, f"kind: server\ntarget: {{url: {url}, ca_file: /etc/hostname}}\n")
        assert errors == [f"2: target.ca_file: {what}. Give a URL with https, wss or grpcs, or leave it out"]
    assert "it is a device" in errors_of(tmp_path, "kind: server\ntarget: {url: https://h, ca_file: /dev/zero}\n")[0]
    with pytest.raises(HarnessFault, match=r"--ca-file: http:"):
        prepare(None, {"url": "http://127.0.0.1:1", "ca_file": "/etc/hostname"}, [], [], tmp_path / "out")


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("duration: 3s", "Write it as stop.min_duration"),
        ("queries: 3", "Write it as stop.min_queries"),
        ("rate: 3", "It belongs under params, of kind server"),
        ("concurrency: 3", "It belongs under params, of kind concurrency"),
        ("url: http://h", "It belongs under target, as target.url"),
        ("max_duration: 3s", "It belongs under stop, as stop.max_duration"),
        ("prompt_tokens: 3", "It belongs under source, of kind "),
        ("params: {rate: 3}", "It belongs to kind server or sessions. Change kind, or take it out"),
    ],
)
def test_a_key_in_the_wrong_place_is_told_its_own(key: str, says: str, tmp_path: Path) -> None:
    (error,) = errors_of(tmp_path, f"kind: concurrency\n{key}\n")
    assert error.startswith("2: ")
    assert f"unknown key. {says}" in error


@pytest.mark.parametrize("name", ["vllm", "OpenAI", "triton", "tgi"])
def test_a_server_given_for_a_protocol_is_told_what_it_speaks(name: str, tmp_path: Path) -> None:
    (error,) = errors_of(tmp_path, f"kind: server\ntarget: {{url: http://h, protocol: {name}}}\n")
    assert f"{name} names a server, and a protocol is what is sent to it. Give one of " in error
    assert len(error) < 250


@pytest.mark.parametrize("name", ["nim", "bentoml", "Ray-Serve", "azure", "whisper", "deepgram", "tensorflow-serving"])
def test_names_of_services_and_frameworks_are_known_too(name: str, tmp_path: Path) -> None:
    (error,) = errors_of(tmp_path, f"kind: server\ntarget: {{url: http://h, protocol: {name}}}\n")
    assert " names a server, and a protocol is what is sent to it. Give one of " in error
    named = error.rpartition("Give one of ")[2].split(", ")
    assert {*named} <= {*protocols()}


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"protocol": "vllm"}, "--protocol: 'vllm' is unknown. vllm names a server"),
        ({"ca_file": "/x"}, "--ca-file: http:// has no certificates"),
        ({"options": {"engine": "warp"}}, "--option engine: 'warp' is none of"),
    ],
)
@pytest.mark.parametrize("with_file", [False, True])
def test_a_mistake_of_a_flag_names_the_flag(flags: Any, says: str, with_file: bool, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("kind: server\n")
    with pytest.raises(HarnessFault) as fault:
        prepare(
            str(tmp_path / "s.yaml") if with_file else None,
            {"url": "http://127.0.0.1:1", **flags},
            (),
            (),
            tmp_path / "r",
        )
    assert fault.value.errors[0].startswith(says)


def test_one_kind_of_file_given_for_another_is_one_hint(tmp_path: Path) -> None:
    a_scenario = str(spec.library()["smoke"])
    with pytest.raises(objective.ObjectiveError, match="is a scenario, not a file of objectives"):
        objective.load_file(Path(a_scenario))
    assert len(read_promises(Asked(slo=[a_scenario]))[1]) == 1
    with pytest.raises(HarnessFault, match="is a scenario, not a bake-off"):
        bakeoff.load(Path(a_scenario))
    path = tmp_path / "b.yaml"
    path.write_text(bakeoff.STARTER)
    assert errors_of(tmp_path, bakeoff.STARTER)[0].endswith(
        "is a bake-off file, not a scenario. Run it with: plimsoll bakeoff FILE."
    )
    with pytest.raises(objective.ObjectiveError, match="is a bake-off file"):
        objective.load_file(path)
    for text in ("apiVersion: openslo/v1\nkind: SLO\n", Path("slo/objectives/openslo/starter.yaml").read_text()):
        assert "is an OpenSLO document. Check it with: plimsoll slo check FILE;" in "".join(errors_of(tmp_path, text))
        path.write_text(text)
        with pytest.raises(HarnessFault, match="is an OpenSLO document"):
            bakeoff.load(path)
