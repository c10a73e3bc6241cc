"""The messages of inference.proto; their types are in the .pyi beside this file."""

from plimsoll.reference_server.protos import build

build(globals())
