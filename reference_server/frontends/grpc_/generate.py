"""``python -m plimsoll.reference_server.frontends.grpc_.generate --write|--check``: the message modules are what the .proto files say.

The generated ``*_pb2.py`` and ``*_pb2.pyi`` are committed, so that serving needs no compiler; a test holds them to the .proto files. Needs
grpcio-tools, in the version of requirements.lock: another one may write other, equally good code.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

_HERE = Path(__file__).absolute().parent
_ROOT = _HERE.parents[3]
NAMES = ("inference", "speech")


def generated() -> dict[Path, bytes]:
    """Every generated file and what it should hold. Raises ModuleNotFoundError without grpcio-tools."""
    from grpc_tools import protoc  # type: ignore[import-untyped]

    sources = [str((_HERE / f"{name}.proto").relative_to(_ROOT)) for name in NAMES]
    with tempfile.TemporaryDirectory() as folder:
        if protoc.main(["protoc", f"-I{_ROOT}", f"--python_out={folder}", f"--pyi_out={folder}", *sources]) != 0:
            raise SystemExit("protoc refused a .proto file; what it said is above")
        made = Path(folder)
        return {_ROOT / path.relative_to(made): path.read_bytes() for path in sorted(made.rglob("*_pb2.py*"))}


def stale() -> list[str]:
    """Generated files that differ from what they should hold."""
    return [str(path) for path, data in generated().items() if not path.is_file() or path.read_bytes() != data]


def main() -> int:
    """Write the files, or say which are out of date."""
    parser = argparse.ArgumentParser(description="The message modules of the gRPC front-end.")
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
