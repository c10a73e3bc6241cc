"""Schemas: descriptor sets, .proto files, shipped sets, and reflection's collecting of files."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, duration_pb2
from grpc_reflection.v1alpha import reflection_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.protocols._grpc import generate
from plimsoll.harness.protocols._grpc.descriptors import (
    SETS,
    Schema,
    choices,
    from_file,
    from_protos,
    from_set,
    missing_imports,
    shipped,
    split_method,
)
from plimsoll.harness.protocols._grpc.protobuf_json import encode
from plimsoll.harness.protocols.grpc_ import _collect
from plimsoll.reference_server.protos import inference_pb2, speech_pb2

SERVICE = "inference.GRPCInferenceService"
PROTO = Path(__file__).parent.parent.parent / "fakes" / "abc.proto"


def file(name: str, *imports: str, service: str = "") -> Any:
    made = descriptor_pb2.FileDescriptorProto(name=name, package="p", dependency=imports, syntax="proto3")
    made.message_type.add(name=name.replace(".", "_"))
    if service:
        kind = f".p.{name.replace('.', '_')}"
        made.service.add(name=service).method.add(name="Do", input_type=kind, output_type=kind)
    return made


def test_the_shipped_sets_are_what_their_sources_say() -> None:
    assert generate.stale() == []


@pytest.mark.parametrize("path", sorted(SETS.glob("*.binpb")), ids=lambda path: path.stem)
def test_every_shipped_set_loads_and_says_the_same_when_written_again(path: Path) -> None:
    schema = shipped(path.stem)
    assert from_set(schema.data).services() == schema.services()


def fields(kind: Any) -> dict[str, tuple[int, int]]:
    return {field.name: (field.number, field.type) for field in kind.fields}


@pytest.mark.parametrize(
    ("name", "theirs"), [("kserve", inference_pb2), ("plimsoll_speech", speech_pb2), ("reflection", reflection_pb2)]
)
def test_names_numbers_and_types_are_those_of_the_other_side(name: str, theirs: Any) -> None:
    """The bundled server's messages and the reflection package's were written by others than these sources."""
    schema, checked = shipped(name), 0
    data = descriptor_pb2.FileDescriptorSet.FromString(schema.data)
    for message in data.file[-1].message_type:
        ours = fields(schema.message(f"{data.file[-1].package}.{message.name}").DESCRIPTOR)
        other = fields(theirs.DESCRIPTOR.message_types_by_name[message.name])
        assert ours.items() <= other.items()
        checked += len(ours)
    assert checked >= 14


def test_a_method_is_found_by_either_spelling() -> None:
    schema = shipped("kserve")
    method = schema.method(f"{SERVICE}/ModelStreamInfer")
    assert (method.path, method.kind) == (f"/{SERVICE}/ModelStreamInfer", "two-way streaming")
    for name in (f"/{SERVICE}/ModelInfer", f"{SERVICE}.ModelInfer", f" {SERVICE}/ModelInfer "):
        assert schema.method(name).kind == "unary"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (f"{SERVICE}/ModelInfr", "has no method 'ModelInfr'. Did you mean ModelInfer?"),
        ("GRPCInferenceService/ModelInfer", f"no service 'GRPCInferenceService'. Did you mean {SERVICE}?"),
        ("ModelInfer", "is no method. Write it as package.Service/Method"),
        ("a/b/c", "is no method"),
        ("/", "is no method"),
    ],
)
def test_an_unknown_method_is_answered_with_what_there_is(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        shipped("kserve").method(name)
    assert said in str(caught.value)


def test_of_many_names_the_nearest_come_first_and_most_are_left_out() -> None:
    text = choices("Modl", [*(f"Other{i:02}" for i in range(30)), "Model"], "method")
    assert text.startswith("Did you mean Model? Known methods: Model, Other00")
    assert text.endswith("and 19 more")
    assert choices("x", [], "service") == "There is no service at all"


def test_files_may_come_in_any_order_and_without_the_well_known_ones() -> None:
    given = [file("c", "b", "google/protobuf/duration.proto", service="S"), file("b", "a"), file("a")]
    schema = Schema(given)
    assert schema.services() == {"p.S": ["Do"]}
    assert schema.method("p.S/Do").kind == "unary"
    assert (
        schema.message("google.protobuf.Duration")(seconds=2).SerializeToString()
        == duration_pb2.Duration(seconds=2).SerializeToString()
    )


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([file("a", "x")], "the import x is missing. Make the set with protoc --include_imports"),
        ([file("a", "b"), file("b", "a")], "imports itself"),
        ([file("a", "a")], "imports itself"),
        ([file("a"), file("b", "a")], None),
    ],
)
def test_a_set_that_lacks_an_import_or_runs_in_circles_is_refused(files: list[Any], said: str | None) -> None:
    if said is None:
        Schema(files)
        return
    with pytest.raises(ValueError, match=said):
        Schema(files)


def test_a_chain_of_imports_longer_than_the_stack_is_only_long() -> None:
    names = [f"f{i}" for i in range(3000)]
    Schema([file("f0"), *(file(name, before) for before, name in pairwise(names))][::-1])


def test_a_set_that_is_none_says_how_to_make_one(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"\xff\xff")
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(ValueError, match=r"it is no FileDescriptorSet. Make one with protoc"):
        from_file(tmp_path / "bad")
    with pytest.raises(ValueError, match="it holds no file"):
        from_file(tmp_path / "empty")
    with pytest.raises(ValueError, match=r"can't read .*nothing: No such file"):
        from_file(tmp_path / "nothing")
    twice = file("a")
    twice.message_type.add(name="a")
    with pytest.raises(ValueError, match=r"^a: "):
        Schema([twice])


@settings(max_examples=300)
@given(
    st.sampled_from(["kserve", "tfserving"]),
    st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=8),
)
def test_a_damaged_set_is_refused_or_read_and_nothing_else(name: str, changes: list[tuple[int, int]]) -> None:
    data = bytearray((SETS / f"{name}.binpb").read_bytes())
    for place, value in changes:
        data[place % len(data)] = value
    with contextlib.suppress(ValueError):
        for service, methods in (schema := from_set(bytes(data))).services().items():
            for method in methods:
                schema.method(f"{service}/{method}")


def test_a_name_that_is_no_text_is_refused() -> None:
    data = (SETS / "tfserving.binpb").read_bytes().replace(b"google/protobuf/wrappers.proto", b"\xff" * 30)
    with pytest.raises(ValueError, match=r"a name in it is not UTF-8"):
        from_set(data)


def test_proto_files_are_compiled_and_a_bad_one_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert from_protos([str(PROTO)]).method("a.B/C").kind == "server streaming"
    with pytest.raises(ValueError, match="there is no file"):
        from_protos([str(tmp_path / "no.proto")])
    bad = tmp_path / "bad.proto"
    bad.write_text('syntax = "proto3"; message {')
    with pytest.raises(ValueError, match="protoc refused it"):
        from_protos([str(bad)])
    assert "bad.proto:1" in capfd.readouterr().err


def test_split_method_takes_the_last_part_for_the_method() -> None:
    assert split_method("/a.b.C/D") == split_method("a.b.C.D") == ("a.b.C", "D")


# -- reflection, without a server -------------------------------------------------------------------------------------


class Server:
    """A server that reflects these files; ``whole``: it sends imports along, ``silent`` leaves a file out
    altogether.
    """

    def __init__(self, *files: Any, services: tuple[str, ...] = ("p.S",), silent: str = "") -> None:
        self.files = {one.name: one for one in files}
        self.services, self.silent, self.asked = services, silent, 0
        self.kind = shipped("reflection").message("grpc.reflection.v1.ServerReflectionResponse")

    async def ask(self, *questions: dict[str, str]) -> list[Any]:
        self.asked += 1
        return [self._answer(question) for question in questions]

    def _answer(self, question: dict[str, str]) -> Any:
        answer: Any = self.kind()
        if "list_services" in question:
            for name in self.services:
                answer.list_services_response.service.add(name=name)
            return answer
        name = question.get("file_by_filename")
        if name is None:
            name = next((one.name for one in self.files.values() if one.service), None)
            if question["file_containing_symbol"] not in self.services:
                name = None
        if name is None or name == self.silent:
            answer.error_response.error_code, answer.error_response.error_message = 5, "not found"
        else:
            answer.file_descriptor_response.file_descriptor_proto.append(self.files[name].SerializeToString())
        return answer


def collect(server: Server, service: str = "p.S") -> Schema:
    return asyncio.run(_collect(server, service))  # type: ignore[arg-type]


def test_missing_imports_are_asked_for_until_none_is_left() -> None:
    server = Server(file("c", "b", "google/protobuf/any.proto", service="S"), file("b", "a"), file("a"))
    assert collect(server).services() == {"p.S": ["Do"]}
    assert server.asked == 3
    assert missing_imports(server.files.values()) == []


def test_an_unknown_service_names_those_that_the_server_has_but_reflection_itself() -> None:
    server = Server(file("c", service="S"), services=("p.S", "grpc.reflection.v1.ServerReflection"))
    with pytest.raises(HarnessFault) as caught:
        collect(server, "p.Z")
    assert str(caught.value) == (
        "target.options.method: the server has no service 'p.Z'. Did you mean p.S? Known services: p.S"
    )


def test_a_file_that_the_server_does_not_reflect_is_named() -> None:
    with pytest.raises(HarnessFault, match=r"reflects p.S but not a, which it imports. Give descriptor_set or proto"):
        collect(Server(file("c", "a", service="S"), silent="a"))


def test_a_listed_service_that_cannot_be_had_is_told_in_the_servers_words() -> None:
    server = Server(file("c"), services=("p.S",))
    with pytest.raises(HarnessFault, match=r"no service 'p.S' \(it says: not found\)"):
        collect(server)


def test_bytes_that_are_no_file_are_refused() -> None:
    server = Server(file("c", service="S"))

    class Torn:
        name = "c"
        service = (1,)

        @staticmethod
        def SerializeToString() -> bytes:  # noqa: N802
            return b"\xff"

    server.files = {"c": Torn}
    with pytest.raises(HarnessFault, match="reflection can't be read"):
        collect(server)


def test_questions_are_the_protocols_own_bytes() -> None:
    kind = shipped("reflection").message("grpc.reflection.v1.ServerReflectionRequest")
    assert (
        encode(kind, {"list_services": "*"})
        == reflection_pb2.ServerReflectionRequest(list_services="*").SerializeToString()
    )
