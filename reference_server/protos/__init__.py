"""The messages of the gRPC services, built from the descriptors that the .proto files compile to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.internal import builder


def build(names: dict[str, Any]) -> None:
    """Put the messages and enums of ``NAME.binpb`` into the names of the module ``NAME_pb2``."""
    path = Path(names["__file__"])
    compiled = path.with_name(f"{path.stem.removesuffix('_pb2')}.binpb").read_bytes()
    described = names["DESCRIPTOR"] = descriptor_pool.Default().AddSerializedFile(compiled)
    builder.BuildMessageAndEnumDescriptors(described, names)
    builder.BuildTopDescriptorsAndMessages(described, names["__name__"], names)
