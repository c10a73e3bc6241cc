"""``python -m plimsoll.harness.protocols._grpc.generate --write|--check`` makes the shipped descriptor sets.

The sets are committed, so that a run needs no compiler, and a test holds them to ``sources/*.proto``. grpcio-tools must
have the version of requirements.lock: another one may write other, equally good bytes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from plimsoll.harness.protocols._grpc.descriptors import SETS

_SOURCES = Path(__file__).parent / "sources"


def generated() -> dict[Path, bytes]:
    """Every set and what it should hold: one a source, with all that it imports. Raises ModuleNotFoundError without
    grpcio-tools.
    """
    import grpc_tools  # type: ignore[import-untyped]
    from grpc_tools import protoc

    include = Path(grpc_tools.__file__).parent / "_proto"
    made = {}
    with tempfile.TemporaryDirectory() as folder:
        for source in sorted(_SOURCES.glob("*.proto")):
            out = Path(folder) / "set"
            given = ["protoc", f"-I{_SOURCES}", f"-I{include}", "--include_imports", f"--descriptor_set_out={out}"]
            if protoc.main([*given, source.name]) != 0:
                raise SystemExit("protoc refused a .proto file; what it said is above")
            made[SETS / f"{source.stem}.binpb"] = out.read_bytes()
    return made


def stale() -> list[str]:
    """Sets that differ from what they should hold, and those without a source."""
    made = generated()
    orphans = [str(path) for path in sorted(SETS.glob("*.binpb")) if path not in made]
    return orphans + [str(path) for path, data in made.items() if not path.is_file() or path.read_bytes() != data]


def main() -> int:
    """Write the sets, or say which are out of date."""
    parser = argparse.ArgumentParser(description="The descriptor sets of the gRPC protocols.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true")
    what.add_argument("--check", action="store_true")
    if parser.parse_args().write:
        SETS.mkdir(exist_ok=True)
        for path, data in generated().items():
            path.write_bytes(data)
        return 0
    old = stale()
    for name in old:
        sys.stderr.write(f"{name} does not match its .proto file. Run it again with --write\n")
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
