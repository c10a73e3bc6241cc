"""A ``Schema`` holds the services and message types of a ``FileDescriptorSet``, in a pool of its own.

A set comes from a file, from .proto files (compiled at start if grpcio-tools is installed), from a server, or with
Plimsoll (``shipped``). protobuf's default pool is never touched, because two schemas may disagree about a name; no
connection is opened.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from plimsoll.documents import files

#: The descriptor sets that come with Plimsoll.
SETS = Path(__file__).parent / "sets"
#: Files that every protobuf runtime has, so that a set may leave them out.
_WELL_KNOWN = (
    "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type",
    "wrappers",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Method:
    """One method: ``path`` is ``/package.Service/Method``."""

    path: str
    request: type[Message]
    response: type[Message]
    client_streaming: bool
    server_streaming: bool

    @property
    def kind(self) -> str:
        """``unary``, ``server streaming``, ``client streaming`` or ``two-way streaming``."""
        if self.client_streaming:
            return "two-way streaming" if self.server_streaming else "client streaming"
        return "server streaming" if self.server_streaming else "unary"


class Schema:
    """What a descriptor set describes. Raises ValueError for a set that can't be used."""

    __slots__ = ("_pool", "_services", "data")

    def __init__(self, files: Iterable[Any]) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        self._services: dict[str, list[str]] = {}
        known = {file.name: file for file in readable(files)}
        ordered = _in_order(known)
        for file in ordered:
            try:
                self._pool.AddSerializedFile(file.SerializeToString())
            except (TypeError, ValueError) as error:
                raise ValueError(f"{file.name}: {_reason(error)}") from None
        for file in ordered:
            if file.name in known:
                package = f"{file.package}." if file.package else ""
                for service in file.service:
                    self._services[package + service.name] = [method.name for method in service.method]
        #: The set itself, in dependency order, complete: what a run directory keeps.
        self.data: bytes = descriptor_pb2.FileDescriptorSet(file=ordered).SerializeToString(deterministic=True)

    @property
    def pool(self) -> Any:
        """The ``DescriptorPool``."""
        return self._pool

    def services(self) -> dict[str, list[str]]:
        """The methods of every service by its full name."""
        return dict(self._services)

    def message(self, name: str) -> type[Message]:
        """The class of a message type by its full name. Raises KeyError."""
        found: type[Message] = message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))
        return found

    def method(self, name: str) -> Method:
        """A method by ``package.Service/Method`` (a leading slash and ``package.Service.Method`` are fine too).

        Raises ValueError that says what there is instead, nearest first.
        """
        service, method = split_method(name)
        if service not in self._services:
            raise ValueError(f"there is no service {service!r}. {choices(service, list(self._services), 'service')}")
        methods = self._services[service]
        if method not in methods:
            raise ValueError(f"{service} has no method {method!r}. {choices(method, methods, 'method')}")
        found = self._pool.FindServiceByName(service).methods_by_name[method]
        return Method(
            f"/{service}/{method}",
            message_factory.GetMessageClass(found.input_type),
            message_factory.GetMessageClass(found.output_type),
            bool(found.client_streaming),
            bool(found.server_streaming),
        )


def split_method(name: str) -> tuple[str, str]:
    """(service, method) of ``package.Service/Method``. Raises ValueError."""
    service, slash, method = name.strip().removeprefix("/").rpartition("/")
    if not slash:
        service, _, method = name.strip().rpartition(".")
    if not service or not method or "/" in service:
        raise ValueError(f"{name!r} is no method. Write it as package.Service/Method")
    return service, method


def choices(wanted: str, names: Sequence[str], what: str) -> str:
    """``Did you mean X? Known services: A, B``, the nearest names first; at most twelve."""
    if not names:
        return f"There is no {what} at all"
    by_lower = {name.lower(): name for name in names}
    near = [by_lower[name] for name in get_close_matches(wanted.lower(), by_lower, n=3, cutoff=0.5)]
    tail = [name for name in names if name.rsplit(".", 1)[-1].lower() == wanted.rsplit(".", 1)[-1].lower()]
    near = list(dict.fromkeys([*tail, *near]))
    shown = list(dict.fromkeys([*near, *sorted(names)]))
    more = f" and {len(shown) - 12} more" if len(shown) > 12 else ""
    hint = f"Did you mean {near[0]}? " if near else ""
    return f"{hint}Known {what}s: {', '.join(shown[:12])}{more}"


def from_set(data: bytes) -> Schema:
    """The schema of a serialized ``FileDescriptorSet``. Raises ValueError."""
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(data).file
    except DecodeError:
        raise ValueError(
            "it is no FileDescriptorSet. Make one with protoc --include_imports --descriptor_set_out"
        ) from None
    if not files:
        raise ValueError("it holds no file. Make it with protoc --include_imports --descriptor_set_out")
    return Schema(files)


def from_file(path: str | Path) -> Schema:
    """The schema in a descriptor set file. Raises ValueError."""
    try:
        data = files.read_bytes(Path(path))
    except OSError as error:
        raise ValueError(f"can't read {path}: {error.strerror}. Check the path") from None
    try:
        return from_set(data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def shipped(name: str) -> Schema:
    """The schema of ``sources/NAME.proto``."""
    return from_file(SETS / f"{name}.binpb")


def from_protos(paths: Sequence[str], folders: Sequence[str] = ()) -> Schema:
    """Compile .proto files; imports are looked for in ``folders``, or beside each file. Raises ValueError.

    Needs grpcio-tools. What the compiler says of a bad file goes to stderr, with file and line.
    """
    missing = [path for path in paths if not Path(path).is_file()]
    if missing:
        raise ValueError(f"there is no file {missing[0]}. Correct the path (it is relative to the working directory)")
    try:
        import grpc_tools  # type: ignore[import-untyped]
        from grpc_tools import protoc
    except ModuleNotFoundError:
        raise ValueError(
            "compiling .proto files needs grpcio-tools. Run `pip install grpcio-tools`, or make a descriptor set "
            "with protoc"
        ) from None
    include = Path(grpc_tools.__file__).parent / "_proto"
    roots = [str(folder) for folder in folders] or list(dict.fromkeys(str(Path(path).parent) for path in paths))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        given = ["protoc", *(f"-I{root}" for root in roots), f"-I{include}", "--include_imports"]
        if protoc.main([*given, f"--descriptor_set_out={out}", *paths]) != 0:
            raise ValueError(
                f"{', '.join(paths)}: protoc refused it; what it said is above. Correct the file or proto_path"
            )
        return from_set(out.read_bytes())


def parsed(data: Iterable[bytes]) -> list[Any]:
    """The ``FileDescriptorProto`` in each of these bytes. Raises ValueError."""
    try:
        return [descriptor_pb2.FileDescriptorProto.FromString(one) for one in data]
    except DecodeError as error:
        raise ValueError(str(error)) from None


def well_known(name: str) -> Any:
    """The ``FileDescriptorProto`` of a file that comes with protobuf, or None."""
    stem = name.removeprefix("google/protobuf/").removesuffix(".proto")
    if name != f"google/protobuf/{stem}.proto" or stem not in _WELL_KNOWN:
        return None
    module = import_module(f"google.protobuf.{stem}_pb2")
    return descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def readable(files: Iterable[Any]) -> list[Any]:
    """The files, whose names are all text. Raises ValueError: protobuf gives a name that isn't UTF-8 as bytes."""
    found = list(files)
    for file in found:
        names = [file.name, file.package, *file.dependency, *(service.name for service in file.service)]
        names += [method.name for service in file.service for method in service.method]
        if not all(isinstance(name, str) for name in names):
            raise ValueError("a name in it is not UTF-8. The set is damaged")
    return found


def missing_imports(files: Iterable[Any]) -> list[str]:
    """Files that these import and that are neither among them nor well known. Raises ValueError."""
    known = {file.name: file for file in readable(files)}
    wanted = dict.fromkeys(name for file in known.values() for name in file.dependency)
    return [name for name in wanted if name not in known and well_known(name) is None]


def _in_order(known: dict[str, Any]) -> list[Any]:
    """The files, each after what it imports. Raises ValueError for a missing import or a circle of them."""
    ordered: dict[str, Any] = {}
    under_way: set[str] = set()
    # By hand, not by recursion: a hostile server's chain of imports may be longer than Python's stack.
    waiting = [(name, False) for name in reversed(known)]
    while waiting:
        name, done = waiting.pop()
        if done:
            under_way.discard(name)
            ordered.setdefault(name, known.get(name) or well_known(name))
            continue
        if name in ordered:
            continue
        if name in under_way:
            raise ValueError(f"{name} imports itself, directly or not. The set is damaged")
        file = known.get(name) or well_known(name)
        if file is None:
            raise ValueError(f"the import {name} is missing. Make the set with protoc --include_imports")
        under_way.add(name)
        waiting.append((name, True))
        waiting += [(other, False) for other in file.dependency if other not in ordered]
    return list(ordered.values())


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text.removeprefix("Couldn't build proto file into descriptor pool: ")[:300]
