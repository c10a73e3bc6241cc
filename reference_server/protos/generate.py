"""``python -m plimsoll.reference_server.protos.generate --write|--check``: descriptors and types from the .proto files.

What is generated is committed, so that serving needs no compiler; a test holds it to the .proto files. It needs
grpcio-tools in the version of requirements.lock: another one may write other, equally good code.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

_HERE = Path(__file__).absolute().parent
_ROOT = _HERE.parents[2]
NAMES = ("inference", "speech")


def generated() -> dict[Path, bytes]:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from grpc_tools import protoc  # type: ignore[import-untyped]

    made: dict[Path, bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder) / "set"
        for name in NAMES:
            source = (_HERE / f"{name}.proto").relative_to(_ROOT)
            given = ["protoc", f"-I{_ROOT}", f"--descriptor_set_out={compiled}", f"--pyi_out={folder}", str(source)]
            if protoc.main(given) != 0:
                raise SystemExit("protoc refused a .proto file; what it said is above")
            (described,) = FileDescriptorSet.FromString(compiled.read_bytes()).file
            made[_HERE / f"{name}.binpb"] = described.SerializeToString(deterministic=True)
            made[_HERE / f"{name}_pb2.pyi"] = (Path(folder) / source).with_name(f"{name}_pb2.pyi").read_bytes()
    return made


def stale() -> list[str]:
    """Generated files that differ from what they should hold."""
    return [str(path) for path, data in generated().items() if not path.is_file() or path.read_bytes() != data]


def main() -> int:
    parser = argparse.ArgumentParser(description="The descriptors of the gRPC front-end.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true")
    what.add_argument("--check", action="store_true")
    if parser.parse_args().write:
        for path, data in generated().items():
            path.write_bytes(data)
        return 0
    old = stale()
    for name in old:
        sys.stderr.write(f"{name} does not match its .proto file. Run it again with --write\n")
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
